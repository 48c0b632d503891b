/* Transactions: how many a second, and how long until a read_committed consumer has what was written in one. */
#include "load.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *data;

static void check(const char *what, rd_kafka_error_t *error) {
    if (error) fail(what, rd_kafka_error_string(error));
}

/* commit_transaction waits for the deliveries of the transaction, so it fails if one of them does. */
static rd_kafka_t *transactional_producer(int number, rd_kafka_topic_t **topic) {
    char id[300];
    snprintf(id, sizeof id, "%s-%d", options.group, number);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "transactional.id", id);
    set(conf, "linger.ms", "0");
    set_given(conf);
    rd_kafka_t *producer = new_client(RD_KAFKA_PRODUCER, conf);
    *topic = rd_kafka_topic_new(producer, options.topic, NULL);
    connect_and_find(producer, *topic);
    int64_t deadline_ns = now_ns() + 30 * NS_PER_S;
    for (rd_kafka_error_t *error; (error = rd_kafka_init_transactions(producer, 10000));) {
        if (!rd_kafka_error_is_retriable(error) || now_ns() > deadline_ns) check("init_transactions", error);
        rd_kafka_error_destroy(error);
        usleep(20000);
    }
    return producer;
}

static void one_transaction(rd_kafka_t *producer, rd_kafka_topic_t *topic, int partition, char *first, size_t size) {
    check("begin_transaction", rd_kafka_begin_transaction(producer));
    for (int i = 0; i < options.per_transaction; i++)
        while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, i ? data : first, size, NULL, 0, NULL) == -1) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(producer, 1);
        }
    int64_t deadline_ns = now_ns() + options.timeout_s * NS_PER_S;
    for (rd_kafka_error_t *error; (error = rd_kafka_commit_transaction(producer, (int)options.timeout_s * 1000));) {
        if (!rd_kafka_error_is_retriable(error) || now_ns() > deadline_ns) check("commit_transaction", error);
        rd_kafka_error_destroy(error);
    }
}

/* ---- as many as possible ---- */

struct writer { pthread_t thread; rd_kafka_t *producer; rd_kafka_topic_t *topic; int partition; int64_t done; struct samples took; };

static int64_t write_until_ns;

static void *write_on(void *of) {
    struct writer *writer = of;
    while (now_ns() < write_until_ns) {
        int64_t begin_ns = now_ns();
        one_transaction(writer->producer, writer->topic, writer->partition, data, options.size);
        add_sample(&writer->took, now_ns() - begin_ns);
        writer->done++;
    }
    return NULL;
}

int transactions(void) {
    struct writer *writers = calloc(options.producers, sizeof *writers);
    if (!writers) fail("memory", "no room for the producers");
    data = payload(options.size);
    for (int i = 0; i < options.producers; i++) {
        writers[i].producer = transactional_producer(i, &writers[i].topic);
        writers[i].partition = options.first_partition + i % options.partitions;
        for (int warm = 0; warm < 3; warm++)
            one_transaction(writers[i].producer, writers[i].topic, writers[i].partition, data, options.size);
    }

    stretch_start();
    write_until_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9);
    for (int i = 0; i < options.producers; i++)
        if (pthread_create(&writers[i].thread, NULL, write_on, &writers[i])) fail("thread", "cannot start");
    int64_t done = 0;
    for (int i = 0; i < options.producers; i++) pthread_join(writers[i].thread, NULL);
    stretch.end_ns = now_ns();
    for (int i = 0; i < options.producers; i++) {
        done += writers[i].done;
        for (size_t j = 0; j < writers[i].took.count; j++) samples_add(writers[i].took.ns[j]);
    }
    int64_t messages = done * options.per_transaction;
    char more[100];
    double seconds = (stretch.end_ns - stretch.start_ns) / 1e9;
    snprintf(more, sizeof more, ", \"transactions\": %" PRId64 ", \"transactions_per_s\": %.2f", done, done / seconds);
    print_result("transactions", messages, messages * (int64_t)options.size, 0, more);
    return 0;
}

/* ---- from the moment a message was due to a read_committed consumer ---- */

static _Atomic int64_t seen;
static _Atomic bool stop_reading;
static rd_kafka_t *reader;

struct stamp { int64_t run_ns, due_ns; };
static struct stamp stamp; /* run_ns tells our messages from others; due_ns is 0 before the clock starts */

static void *read_on(void *nothing) {
    (void)nothing;
    while (!stop_reading) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 50);
        if (!message) continue;
        if (message->err) {
            if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) fail("read", rd_kafka_message_errstr(message));
        } else {
            struct stamp found = {0};
            if (message->len >= sizeof found) memcpy(&found, message->payload, sizeof found);
            if (found.run_ns == stamp.run_ns) {
                if (found.due_ns) samples_add(now_ns() - found.due_ns);
                seen++;
            }
        }
        rd_kafka_message_destroy(message);
    }
    return NULL;
}

static void start_reader(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", options.group);
    set(conf, "enable.auto.commit", "false");
    set(conf, "isolation.level", "read_committed");
    set(conf, "auto.offset.reset", "earliest");
    reader = new_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(reader);
    rd_kafka_topic_partition_list_t *assigned = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(assigned, options.topic, options.first_partition)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_resp_err_t error = rd_kafka_assign(reader, assigned);
    rd_kafka_topic_partition_list_destroy(assigned);
    if (error) fail("assign", rd_kafka_err2str(error));
}

static void wait_until_seen(int64_t count) {
    int64_t deadline_ns = now_ns() + options.timeout_s * NS_PER_S;
    while (seen < count) {
        if (now_ns() > deadline_ns) fail("committed", "not all messages came to the reader in time");
        usleep(500);
    }
}

int read_committed(void) {
    if (options.size < sizeof stamp) fail("committed", "--size has no room for the time");
    options.per_transaction = 1;
    data = payload(options.size);
    stamp.run_ns = now_ns();
    rd_kafka_topic_t *topic;
    rd_kafka_t *producer = transactional_producer(0, &topic);
    start_reader();
    pthread_t thread;
    int64_t total = (int64_t)(options.rate * options.seconds), sent = 0;
    samples_reserve(total + 1);
    if (pthread_create(&thread, NULL, read_on, NULL)) fail("thread", "cannot start");
    memcpy(data, &stamp, sizeof stamp);
    for (; sent < 5; sent++) {
        one_transaction(producer, topic, options.first_partition, data, options.size);
        wait_until_seen(sent + 1);
    }

    stretch_start();
    for (int64_t number = 0; number < total; number++, sent++) {
        int64_t due_ns = stretch.start_ns + (int64_t)(number * 1e9 / options.rate);
        struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
        if (now_ns() < due_ns) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        stamp.due_ns = due_ns;
        memcpy(data, &stamp, sizeof stamp);
        one_transaction(producer, topic, options.first_partition, data, options.size);
    }
    wait_until_seen(sent);
    stretch.end_ns = now_ns();
    stop_reading = true;
    pthread_join(thread, NULL);
    print_result("committed", total, total * (int64_t)options.size, 0, "");
    return 0;
}
