/* Consumers of librdkafka that share a topic in a group of the classic protocol: a rebalance as programs see it.
 *
 * Timed from subscribe() or unsubscribe() of one of them to the moment when all members have been given their partitions.
 * The group is at rest before: every member has sent a heartbeat since the last change, at a moment of its own. The
 * others learn of the change by the answer to a heartbeat. One thread looks at all consumers every quarter of a
 * millisecond.
 */
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOK_US = 250, HEARTBEAT_MS = 500, SLACK_MS = 100 };

struct consumer { rd_kafka_t *client; bool present, renewed; int partitions; };

static struct consumer *consumers;
static bool awaited; /* whether assignments from now on count */

static void rebalanced(rd_kafka_t *client, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t *list, void *opaque) {
    struct consumer *consumer = opaque;
    if (what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        rd_kafka_assign(client, list);
        consumer->partitions = list->cnt;
        consumer->renewed = awaited;
    } else {
        rd_kafka_assign(client, NULL);
        consumer->partitions = 0;
    }
}

static bool all_renewed(void) {
    int owned = 0, present = 0;
    for (int i = 0; i < options.members; i++) {
        if (!consumers[i].present) continue;
        if (!consumers[i].renewed) return false;
        owned += consumers[i].partitions;
        present++;
    }
    return !present || owned == options.partitions;
}

static void look(void) {
    for (int i = 0; i < options.members; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumers[i].client, 0);
        if (message) rd_kafka_message_destroy(message);
    }
}

static int64_t settle_since(int64_t began_ns) {
    int64_t deadline_ns = began_ns + options.timeout_s * NS_PER_S;
    for (look(); !all_renewed(); look()) {
        if (now_ns() > deadline_ns) fail("consumers", "the group did not settle in time");
        usleep(LOOK_US);
    }
    return now_ns() - began_ns;
}

/* A little more than one to two heartbeats long, so that changes come at any moment between two of them. */
static void rest(void) {
    int64_t until_ns = now_ns() + (HEARTBEAT_MS + SLACK_MS + rand() % HEARTBEAT_MS) * (NS_PER_S / 1000);
    for (look(); now_ns() < until_ns; look()) usleep(LOOK_US);
}

static void begin(void) {
    awaited = true;
    for (int i = 0; i < options.members; i++) consumers[i].renewed = false;
}

static void join(struct consumer *consumer) {
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, options.topic, RD_KAFKA_PARTITION_UA);
    consumer->present = true;
    rd_kafka_resp_err_t error = rd_kafka_subscribe(consumer->client, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (error) fail("subscribe", rd_kafka_err2str(error));
}

static void leave(struct consumer *consumer) {
    consumer->present = false;
    rd_kafka_resp_err_t error = rd_kafka_unsubscribe(consumer->client);
    if (error) fail("unsubscribe", rd_kafka_err2str(error));
}

int rebalance_consumers(void) {
    consumers = calloc(options.members, sizeof *consumers);
    if (!consumers) fail("memory", "no room for the consumers");
    for (int i = 0; i < options.members; i++) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "group.id", options.group);
        set(conf, "enable.auto.commit", "false");
        set(conf, "partition.assignment.strategy", "range");
        char interval[16];
        snprintf(interval, sizeof interval, "%d", HEARTBEAT_MS);
        set(conf, "heartbeat.interval.ms", interval);
        rd_kafka_conf_set_rebalance_cb(conf, rebalanced);
        rd_kafka_conf_set_opaque(conf, &consumers[i]);
        set_given(conf);
        consumers[i].client = new_client(RD_KAFKA_CONSUMER, conf);
        rd_kafka_poll_set_consumer(consumers[i].client);
    }
    struct consumer *last = &consumers[options.members - 1];
    begin();
    for (int i = 0; i < options.members; i++) join(&consumers[i]);
    settle_since(now_ns());
    begin(), leave(last), settle_since(now_ns());

    struct samples leaving = {0};
    stretch_start();
    int64_t deadline_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9), began_ns;
    do {
        rest(), begin(), began_ns = now_ns(), join(last);
        samples_add(settle_since(began_ns));
        rest(), begin(), began_ns = now_ns(), leave(last);
        add_sample(&leaving, settle_since(began_ns));
    } while (options.messages ? (int64_t)samples.count < options.messages : now_ns() < deadline_ns);
    stretch.end_ns = now_ns();

    qsort(leaving.ns, leaving.count, sizeof *leaving.ns, by_value);
    char more[100];
    snprintf(more, sizeof more, ", \"leaving_p50_us\": %.1f, \"leaving_max_us\": %.1f",
             percentile_us(leaving.ns, leaving.count, 0.5), leaving.ns[leaving.count - 1] / 1e3);
    print_result("consumers", samples.count, 0, 0, more);
    fflush(stdout);
    _exit(0); /* closing a hundred consumers one by one takes long and is not measured */
}
