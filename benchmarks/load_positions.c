/* Positions: OffsetCommit requests of one position each, by a reader that assigns its partitions itself. */
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static rd_kafka_t *reader;
static rd_kafka_queue_t *answers;
static int64_t *sent_at_ns; /* of the commits on the way, by number modulo in_flight: they are answered in order */
static int64_t sent, answered, refused;
static rd_kafka_resp_err_t first_refusal;

static void commit_next(void) {
    rd_kafka_topic_partition_list_t *positions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(positions, options.topic, options.first_partition)->offset = sent + 1;
    sent_at_ns[sent % options.in_flight] = now_ns();
    rd_kafka_resp_err_t error = rd_kafka_commit_queue(reader, positions, answers, NULL, NULL);
    rd_kafka_topic_partition_list_destroy(positions);
    if (error) fail("commit", rd_kafka_err2str(error));
    sent++;
}

static void take_answer(void) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(answers, (int)options.timeout_s * 1000);
    if (!event) fail("commit", "no answer in time");
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_OFFSET_COMMIT) {
        samples_add(now_ns() - sent_at_ns[answered % options.in_flight]);
        answered++;
        if (rd_kafka_event_error(event) && !refused++) first_refusal = rd_kafka_event_error(event);
    }
    rd_kafka_event_destroy(event);
}

/* The coordinator is found and its topic made before the clock starts. */
static void commit_once(void) {
    rd_kafka_topic_partition_list_t *position = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(position, options.topic, options.first_partition)->offset = 0;
    int64_t deadline_ns = now_ns() + 30 * NS_PER_S;
    for (;;) {
        rd_kafka_resp_err_t error = rd_kafka_commit(reader, position, 0);
        if (!error) break;
        if (now_ns() > deadline_ns) fail("first commit", rd_kafka_err2str(error));
        usleep(20000);
    }
    rd_kafka_topic_partition_list_destroy(position);
}

int commit_positions(void) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "group.id", options.group);
    set(conf, "enable.auto.commit", "false");
    set_given(conf);
    reader = new_client(RD_KAFKA_CONSUMER, conf);
    answers = rd_kafka_queue_new(reader);
    sent_at_ns = calloc(options.in_flight, sizeof *sent_at_ns);
    if (!sent_at_ns) fail("memory", "no room for the commits on the way");
    commit_once();
    samples_reserve(1 << 20);

    stretch_start();
    int64_t deadline_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9);
    while (options.messages ? sent < options.messages : now_ns() < deadline_ns) {
        while (sent - answered < options.in_flight) commit_next();
        take_answer();
    }
    while (answered < sent) take_answer();
    stretch.end_ns = now_ns();
    print_result("commits", answered - refused, 0, refused, "");
    if (refused) fail("commits", rd_kafka_err2str(first_refusal));
    return 0;
}
