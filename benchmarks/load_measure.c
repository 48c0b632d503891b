/* What a run measured: CPU of the process and its busiest thread, exact percentiles, and the JSON line that says it. */
#include "load.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MAX_THREADS 1024

/* ---- CPU: of the process, and of its busiest thread, which is the one that can limit ---- */

struct threads { int count; int id[MAX_THREADS]; int64_t cpu_ns[MAX_THREADS]; };

static struct threads thread_times(void) {
    struct threads found = {0};
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return found;
    for (struct dirent *entry; (entry = readdir(tasks)) && found.count < MAX_THREADS;) {
        char path[300];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        int64_t cpu_ns;
        if (fscanf(file, "%" SCNd64, &cpu_ns) == 1) {
            found.id[found.count] = atoi(entry->d_name);
            found.cpu_ns[found.count++] = cpu_ns;
        }
        fclose(file);
    }
    closedir(tasks);
    return found;
}

static double busiest_thread_s(const struct threads *before, const struct threads *after) {
    int64_t most = 0;
    for (int i = 0; i < after->count; i++) {
        int64_t used = after->cpu_ns[i];
        for (int j = 0; j < before->count; j++)
            if (before->id[j] == after->id[i]) used -= before->cpu_ns[j];
        if (used > most) most = used;
    }
    return most / 1e9;
}

static double process_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- latency samples ---- */

struct samples samples;

void samples_reserve(size_t room) {
    samples.ns = malloc(room * sizeof *samples.ns);
    if (!samples.ns) fail("memory", "no room for the samples");
    samples.room = room;
}

void add_sample(struct samples *to, int64_t ns) {
    if (to->count == to->room) {
        to->room = to->room ? to->room * 2 : 1024;
        to->ns = realloc(to->ns, to->room * sizeof *to->ns);
        if (!to->ns) fail("memory", "no room for the samples");
    }
    to->ns[to->count++] = ns;
}

void samples_add(int64_t ns) { add_sample(&samples, ns); }

int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest sample that at least `share` of all samples do not exceed. */
double percentile_us(const int64_t *sorted_ns, size_t count, double share) {
    size_t rank = (size_t)(share * count);
    if (rank < share * count) rank++;
    if (rank < 1) rank = 1;
    return sorted_ns[rank - 1] / 1e3;
}

static double sample_us(double share) { return percentile_us(samples.ns, samples.count, share); }

static void print_percentiles(void) {
    if (!samples.count) return;
    qsort(samples.ns, samples.count, sizeof *samples.ns, by_value);
    double sum = 0;
    for (size_t i = 0; i < samples.count; i++) sum += samples.ns[i] / 1e3;
    printf(", \"mean_us\": %.1f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f",
           sum / samples.count, sample_us(0.5), sample_us(0.9), sample_us(0.99), sample_us(0.999),
           samples.ns[samples.count - 1] / 1e3);
}

/* ---- one measured stretch of time ---- */

struct stretch stretch;
static double cpu_before_s;
static struct threads threads_before;

void stretch_start(void) {
    threads_before = thread_times();
    cpu_before_s = process_cpu_s();
    stretch.start_ns = now_ns();
}

void print_result(const char *mode, int64_t messages, int64_t bytes, int64_t errors, const char *more) {
    double seconds = (stretch.end_ns - stretch.start_ns) / 1e9;
    static struct threads after;
    after = thread_times();
    printf("{\"mode\": \"%s\", \"messages\": %" PRId64 ", \"bytes\": %" PRId64 ", \"errors\": %" PRId64
           ", \"seconds\": %.6f, \"messages_per_s\": %.1f, \"mb_per_s\": %.3f, \"cpu_s\": %.4f, \"busiest_thread_s\": %.4f, \"began_at_s\": %.6f, \"ended_at_s\": %.6f",
           mode, messages, bytes, errors, seconds, messages / seconds, bytes / seconds / 1e6,
           process_cpu_s() - cpu_before_s, busiest_thread_s(&threads_before, &after),
           stretch.start_ns / 1e9, stretch.end_ns / 1e9);
    print_percentiles();
    printf("%s}\n", more);
}

