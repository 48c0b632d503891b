/* What the files of the benchmarks' client share: options, the clock, samples, one measured stretch, librdkafka set-up. */
#ifndef CORDWOOD_LOAD_H
#define CORDWOOD_LOAD_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NS_PER_S 1000000000LL
#define MAX_PROPERTIES 32

struct options {
    const char *bootstrap, *topic, *acks, *group, *protocol;
    int64_t messages; /* 0: as many as fit into `seconds` */
    double seconds;
    size_t size;
    int partitions, first_partition;
    double rate;
    int64_t timeout_s;
    int members, producers, in_flight, per_transaction;
    const char *properties[MAX_PROPERTIES]; /* name=value, librdkafka's own */
    int property_count;
};
extern struct options options;

_Noreturn void fail(const char *what, const char *why);
int64_t now_ns(void);

/* ---- load_measure.c: samples, CPU, results ---- */

struct samples { int64_t *ns; size_t count, room; };
extern struct samples samples; /* what print_result prints the percentiles of */

int by_value(const void *a, const void *b);
double percentile_us(const int64_t *sorted_ns, size_t count, double share);
void samples_reserve(size_t room);
void samples_add(int64_t ns);
void add_sample(struct samples *to, int64_t ns);

struct stretch { int64_t start_ns, end_ns; };
extern struct stretch stretch;

void stretch_start(void);
void print_result(const char *mode, int64_t messages, int64_t bytes, int64_t errors, const char *more);

/* ---- load.c: librdkafka ---- */

void set(rd_kafka_conf_t *conf, const char *name, const char *value);
void set_given(rd_kafka_conf_t *conf);
rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf);
void connect_and_find(rd_kafka_t *client, rd_kafka_topic_t *topic);
char *payload(size_t size);

/* ---- modes ---- */

int commit_positions(void);   /* load_positions.c */
int transactions(void);       /* load_transactions.c */
int read_committed(void);     /* load_transactions.c */
int rebalance_members(void);  /* load_members.c: the protocol itself, without librdkafka */

#endif
