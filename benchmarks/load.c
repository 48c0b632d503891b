/* Load for the benchmarks: one librdkafka client that produces or consumes and prints one JSON line of what it measured.
 *
 * Owns the client's side of every figure. Promises: time starts after the connections are up and a first round trip was
 * made (except in first-ack), and ends with the last acknowledgement or message; a failed delivery is counted and makes
 * the exit code 1; percentiles are exact (all samples are kept and sorted), never taken from buckets.
 *
 *   load produce      as much as possible for --seconds, or --messages of them
 *   load sync         one message, its acknowledgement, the next one: round trips
 *   load steady       --rate messages a second for --seconds; latency counts from the moment a message was DUE, so a stall
 *                     is felt by every message that should have been sent meanwhile (no coordinated omission)
 *   load consume      from the beginning, all that the partitions hold at the start, or --messages of it;
 *                     SIGTERM ends it early, and what was read until then is printed
 *   load first-ack    retries without pause until one message is acknowledged; prints CLOCK_MONOTONIC at that moment
 *   load commits      OffsetCommit of one position, --in-flight of them on the way
 *   load transactions --producers that write --per-transaction messages in a transaction, commit, and begin the next
 *   load committed    one message a transaction, --rate of them a second; latency counts from the moment a message was
 *                     DUE to the moment a read_committed consumer has it
 *   load members      --members of a group, each on a connection, speaking --protocol classic or consumer themselves
 *   load consumers    the same with consumers of librdkafka
 *   load percentiles  of the microseconds on standard input: lets a test check the arithmetic
 */
#include "load.h"
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct options options = {.bootstrap = "127.0.0.1:9092", .topic = "bench", .acks = "1", .group = "load",
                          .protocol = "classic", .seconds = 3, .size = 100, .partitions = 1, .rate = 1000,
                          .timeout_s = 120, .members = 1, .producers = 1, .in_flight = 1, .per_transaction = 1};

_Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
    exit(2);
}

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* ---- librdkafka ---- */

void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

void set_given(rd_kafka_conf_t *conf) {
    for (int i = 0; i < options.property_count; i++) {
        char name[256];
        const char *equals = strchr(options.properties[i], '=');
        if (!equals || equals - options.properties[i] >= (ptrdiff_t)sizeof name) fail("property", options.properties[i]);
        memcpy(name, options.properties[i], equals - options.properties[i]);
        name[equals - options.properties[i]] = 0;
        set(conf, name, equals + 1);
    }
}

static void quiet(const rd_kafka_t *client, int level, const char *facility, const char *text) {
    (void)client;
    if (level <= 3 && strcmp(facility, "FAIL") != 0) fprintf(stderr, "librdkafka: %s: %s\n", facility, text);
}

rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char why[512];
    set(conf, "bootstrap.servers", options.bootstrap);
    set(conf, "socket.nagle.disable", "true"); /* else small requests wait for the acknowledgement of the one before */
    rd_kafka_conf_set_log_cb(conf, quiet);
    rd_kafka_t *client = rd_kafka_new(type, conf, why, sizeof why);
    if (!client) fail("client", why);
    return client;
}

void connect_and_find(rd_kafka_t *client, rd_kafka_topic_t *topic) {
    const struct rd_kafka_metadata *metadata;
    int64_t deadline_ns = now_ns() + 30 * NS_PER_S;
    for (;;) {
        rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &metadata, 5000);
        if (!error) {
            bool ready = metadata->topic_cnt == 1 && !metadata->topics[0].err && metadata->topics[0].partition_cnt > 0;
            rd_kafka_metadata_destroy(metadata);
            if (ready) return;
        }
        if (now_ns() > deadline_ns) fail("topic not there", error ? rd_kafka_err2str(error) : options.topic);
        usleep(20000);
    }
}

/* Random, but of 64 letters, so that compression finds something to do, as it would in text. */
char *payload(size_t size) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    char *data = malloc(size ? size : 1);
    uint64_t state = 88172645463325252ULL;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        data[i] = letters[state >> 58];
    }
    return data;
}

static _Atomic int64_t delivered, failed;
static rd_kafka_resp_err_t first_error;

static void count_failures(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!failed++) first_error = message->err;
    } else {
        delivered++;
    }
}

static int report_failures(void) {
    if (!failed) return 0;
    fprintf(stderr, "load: %" PRId64 " messages failed, the first with: %s\n", (int64_t)failed, rd_kafka_err2str(first_error));
    return 1;
}

static void send_one(rd_kafka_topic_t *topic, int partition, char *data, void *opaque) {
    while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_BLOCK, data, options.size, NULL, 0, opaque) == -1)
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
}

static void flush(rd_kafka_t *client) {
    rd_kafka_resp_err_t error = rd_kafka_flush(client, (int)options.timeout_s * 1000);
    if (error) fail("flush", rd_kafka_err2str(error));
}

/* A first round trip per partition: connections, metadata and the broker's partition state are not what is measured. */
static void touch_partitions(rd_kafka_t *client, rd_kafka_topic_t *topic, char *data) {
    for (int i = 0; i < options.partitions; i++) send_one(topic, options.first_partition + i, data, NULL);
    flush(client);
    delivered = 0;
}

static int produce(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", options.acks);
    set(conf, "queue.buffering.max.messages", "500000");
    set(conf, "queue.buffering.max.kbytes", "131072");
    set(conf, "delivery.report.only.error", "true"); /* success is what flush() leaves nothing of */
    rd_kafka_conf_set_dr_msg_cb(conf, count_failures);
    set_given(conf);
    rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    char *data = payload(options.size);
    connect_and_find(client, topic);
    touch_partitions(client, topic, data);

    stretch_start();
    int64_t deadline_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9), sent = 0;
    int partition = 0;
    for (;;) {
        if (options.messages ? sent == options.messages : (sent & 63) == 0 && now_ns() >= deadline_ns) break;
        send_one(topic, options.first_partition + partition, data, NULL);
        if (++partition == options.partitions) partition = 0;
        if ((++sent & 8191) == 0) rd_kafka_poll(client, 0);
    }
    flush(client);
    stretch.end_ns = now_ns();
    print_result("produce", sent - failed, (sent - failed) * (int64_t)options.size, failed, "");
    return report_failures();
}

static int produce_sync(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", options.acks);
    set(conf, "linger.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, count_failures);
    set_given(conf);
    rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    char *data = payload(options.size);
    connect_and_find(client, topic);
    touch_partitions(client, topic, data);
    samples_reserve(1 << 20);

    stretch_start();
    int64_t deadline_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9), sent = 0, begin_ns, end_ns;
    do {
        begin_ns = now_ns();
        send_one(topic, options.first_partition + sent % options.partitions, data, NULL);
        sent++;
        while (delivered + failed < sent) rd_kafka_poll(client, 1000);
        end_ns = now_ns();
        samples_add(end_ns - begin_ns);
    } while (options.messages ? sent < options.messages : end_ns < deadline_ns);
    stretch.end_ns = end_ns;
    print_result("sync", delivered, delivered * (int64_t)options.size, failed, "");
    return report_failures();
}

/* ---- steady rate ---- */

static int64_t schedule_start_ns;
static double schedule_step_ns;
static _Atomic bool stop_polling;

static void sample_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    count_failures(client, message, opaque);
    int64_t number = (int64_t)(intptr_t)message->_private - 1;
    if (number >= 0 && !message->err) samples_add(now_ns() - schedule_start_ns - (int64_t)(number * schedule_step_ns));
}

static void *poll_deliveries(void *client) {
    while (!stop_polling) rd_kafka_poll(client, 50);
    return NULL;
}

static int produce_steadily(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", options.acks);
    set(conf, "linger.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, sample_delivery);
    set_given(conf);
    rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    char *data = payload(options.size);
    connect_and_find(client, topic);
    touch_partitions(client, topic, data);
    int64_t total = (int64_t)(options.rate * options.seconds);
    int64_t *late_ns = calloc(total + 1, sizeof *late_ns);
    if (!late_ns) fail("memory", "no room for the samples");
    samples_reserve(total + 1);
    schedule_step_ns = 1e9 / options.rate;
    pthread_t poller;
    if (pthread_create(&poller, NULL, poll_deliveries, client)) fail("thread", "cannot start");

    stretch_start();
    schedule_start_ns = stretch.start_ns;
    for (int64_t number = 0; number < total; number++) {
        int64_t due_ns = schedule_start_ns + (int64_t)(number * schedule_step_ns);
        struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
        if (now_ns() < due_ns) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        late_ns[number] = now_ns() - due_ns;
        send_one(topic, options.first_partition + number % options.partitions, data, (void *)(intptr_t)(number + 1));
    }
    int64_t patience_ns = now_ns() + options.timeout_s * NS_PER_S;
    while (delivered + failed < total && now_ns() < patience_ns) usleep(1000);
    stretch.end_ns = now_ns();
    stop_polling = true;
    pthread_join(poller, NULL);
    /* How late this process was by itself: what a starved client adds to the latency, whatever the broker does. */
    qsort(late_ns, total, sizeof *late_ns, by_value);
    char more[120];
    snprintf(more, sizeof more, ", \"sender_late_p99_us\": %.1f, \"sender_late_max_us\": %.1f",
             percentile_us(late_ns, total, 0.99), late_ns[total - 1] / 1e3);
    print_result("steady", delivered, delivered * (int64_t)options.size, failed, more);
    if (delivered + failed < total) fail("steady", "some messages were never acknowledged");
    return report_failures();
}

/* ---- consume ---- */

static int64_t consumed, consumed_bytes, to_consume;
static volatile sig_atomic_t asked_to_end;

static void end_early(int number) {
    (void)number;
    asked_to_end = 1;
}

static int64_t *end_of_partition;

static void take(rd_kafka_message_t *message, void *opaque) {
    (void)opaque;
    if (message->err) {
        if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) fail("consume", rd_kafka_message_errstr(message));
        return;
    }
    if (message->offset >= end_of_partition[message->partition]) return;
    consumed++;
    consumed_bytes += message->len;
    if (consumed == to_consume) stretch.end_ns = now_ns();
}

static int consume(void) {
    signal(SIGTERM, end_early);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    /* Bounds that a client which only counts never fills: librdkafka 2.0 pauses for whole backoffs when it does. */
    set(conf, "queued.min.messages", "10000000");
    set(conf, "queued.max.messages.kbytes", "1000000");
    set(conf, "fetch.error.backoff.ms", "10");
    set(conf, "group.id", "load");
    set(conf, "enable.auto.commit", "false");
    set_given(conf);
    rd_kafka_t *client = new_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    connect_and_find(client, topic);
    end_of_partition = calloc(options.first_partition + options.partitions, sizeof *end_of_partition);
    for (int i = options.first_partition; i < options.first_partition + options.partitions; i++) {
        int64_t low, high;
        rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(client, options.topic, i, &low, &high, 10000);
        if (error) fail("offsets", rd_kafka_err2str(error));
        end_of_partition[i] = high;
        to_consume += high - low;
    }
    if (options.messages && options.messages < to_consume) to_consume = options.messages;
    if (!to_consume) fail("consume", "the partitions are empty");
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);

    stretch_start();
    for (int i = options.first_partition; i < options.first_partition + options.partitions; i++)
        if (rd_kafka_consume_start_queue(topic, i, RD_KAFKA_OFFSET_BEGINNING, queue) == -1)
            fail("consume", rd_kafka_err2str(rd_kafka_last_error()));
    int64_t deadline_ns = stretch.start_ns + options.timeout_s * NS_PER_S;
    while (consumed < to_consume && !asked_to_end) {
        rd_kafka_consume_callback_queue(queue, 100, take, NULL);
        rd_kafka_poll(client, 0);
        if (now_ns() > deadline_ns) fail("consume", "not all messages came in time");
    }
    if (consumed < to_consume) stretch.end_ns = now_ns();
    print_result("consume", consumed, consumed_bytes, 0, "");
    return 0;
}

/* ---- from process start to the first acknowledgement ---- */

static void wait_for_listener(void) {
    char host[64];
    const char *colon = strrchr(options.bootstrap, ':');
    snprintf(host, sizeof host, "%.*s", (int)(colon - options.bootstrap), options.bootstrap);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
    inet_pton(AF_INET, host, &address.sin_addr);
    int64_t deadline_ns = now_ns() + options.timeout_s * NS_PER_S;
    for (;;) {
        int probe = socket(AF_INET, SOCK_STREAM, 0);
        int refused = connect(probe, (struct sockaddr *)&address, sizeof address);
        close(probe);
        if (!refused) return;
        if (now_ns() > deadline_ns) fail("first-ack", "nobody listens");
        usleep(1000);
    }
}

static int first_ack(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "acks", options.acks);
    set(conf, "linger.ms", "0");
    set(conf, "reconnect.backoff.ms", "1");
    set(conf, "reconnect.backoff.max.ms", "10");
    set(conf, "retry.backoff.ms", "5");
    set(conf, "topic.metadata.refresh.fast.interval.ms", "5");
    set(conf, "topic.metadata.propagation.max.ms", "120000"); /* a broker that is still loading does not know the topic */
    rd_kafka_conf_set_dr_msg_cb(conf, count_failures);
    set_given(conf);
    wait_for_listener();
    int64_t listening_ns = now_ns();
    rd_kafka_t *client = new_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, options.topic, NULL);
    char *data = payload(options.size);
    stretch_start();
    send_one(topic, options.first_partition, data, NULL);
    int64_t deadline_ns = now_ns() + options.timeout_s * NS_PER_S;
    while (!delivered && !failed && now_ns() < deadline_ns) rd_kafka_poll(client, 100);
    stretch.end_ns = now_ns();
    char more[120];
    snprintf(more, sizeof more, ", \"listening_at_s\": %.6f, \"acked_at_s\": %.6f", listening_ns / 1e9, stretch.end_ns / 1e9);
    print_result("first-ack", delivered, delivered * (int64_t)options.size, failed, more);
    return delivered ? 0 : report_failures() | 1;
}

static int percentiles(void) {
    double us;
    while (scanf("%lf", &us) == 1) samples_add((int64_t)(us * 1000));
    stretch_start();
    stretch.end_ns = stretch.start_ns + 1;
    print_result("percentiles", samples.count, 0, 0, "");
    return 0;
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"bootstrap", required_argument, 0, 'b'}, {"topic", required_argument, 0, 't'},
        {"acks", required_argument, 0, 'a'},      {"messages", required_argument, 0, 'n'},
        {"seconds", required_argument, 0, 'T'},   {"size", required_argument, 0, 's'},
        {"partitions", required_argument, 0, 'p'}, {"first-partition", required_argument, 0, 'f'},
        {"rate", required_argument, 0, 'r'},      {"timeout", required_argument, 0, 'w'},
        {"group", required_argument, 0, 'g'},     {"protocol", required_argument, 0, 'P'},
        {"members", required_argument, 0, 'm'},   {"producers", required_argument, 0, 'k'},
        {"in-flight", required_argument, 0, 'i'}, {"per-transaction", required_argument, 0, 'c'},
        {"set", required_argument, 0, 'X'},       {0, 0, 0, 0}};
    if (argc < 2) fail("usage", "load MODE --bootstrap HOST:PORT --topic NAME ...; the modes are in load.c");
    for (int option; (option = getopt_long(argc - 1, argv + 1, "X:", names, NULL)) != -1;) switch (option) {
        case 'b': options.bootstrap = optarg; break;
        case 't': options.topic = optarg; break;
        case 'a': options.acks = optarg; break;
        case 'n': options.messages = atoll(optarg); break;
        case 'T': options.seconds = atof(optarg); break;
        case 's': options.size = strtoul(optarg, NULL, 10); break;
        case 'p': options.partitions = atoi(optarg); break;
        case 'f': options.first_partition = atoi(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 'w': options.timeout_s = atoll(optarg); break;
        case 'g': options.group = optarg; break;
        case 'P': options.protocol = optarg; break;
        case 'm': options.members = atoi(optarg); break;
        case 'k': options.producers = atoi(optarg); break;
        case 'i': options.in_flight = atoi(optarg); break;
        case 'c': options.per_transaction = atoi(optarg); break;
        case 'X':
            if (options.property_count == MAX_PROPERTIES) fail("usage", "too many --set");
            options.properties[options.property_count++] = optarg;
            break;
        default: return 2;
    }
    const char *mode = argv[1];
    if (!strcmp(mode, "produce")) return produce();
    if (!strcmp(mode, "sync")) return produce_sync();
    if (!strcmp(mode, "steady")) return produce_steadily();
    if (!strcmp(mode, "consume")) return consume();
    if (!strcmp(mode, "first-ack")) return first_ack();
    if (!strcmp(mode, "commits")) return commit_positions();
    if (!strcmp(mode, "transactions")) return transactions();
    if (!strcmp(mode, "committed")) return read_committed();
    if (!strcmp(mode, "members")) return rebalance_members();
    if (!strcmp(mode, "percentiles")) return percentiles();
    if (!strcmp(mode, "version")) return puts(rd_kafka_version_str()) < 0;
    fail("unknown mode", mode);
}
