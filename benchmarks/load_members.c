/* Members of a group that speak the protocol themselves: every answer is acted on at once, so that what a rebalance takes
 * is what the broker takes. librdkafka waits for its next heartbeat before it learns of a change, up to 3 seconds.
 *
 * A rebalance is timed from the request of the member that joins or leaves to the last answer with which all members of
 * the group have their part in it. The others learn of the change as all clients do, by a heartbeat, which they send as
 * soon as the change was asked for (joining) or done (leaving). All in one thread, a connection for each member.
 */
#include "load.h"
#include "load_wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { JOIN_GROUP = 11, HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14, FIND_COORDINATOR = 10, CONSUMER_HEARTBEAT = 68 };
enum { NONE = 0, LOADING = 14, NOT_AVAILABLE = 15, NOT_COORDINATOR = 16, REBALANCE_IN_PROGRESS = 27, MEMBER_ID_REQUIRED = 79 };
enum { SESSION_MS = 45000, REBALANCE_MS = 60000, STALLED_MS = 20, MOST_PARTITIONS = 1000, ID_ROOM = 256 };

struct member {
    int socket, asked; /* asked: the API whose answer it waits for, or 0 */
    bool present;
    char id[ID_ROOM];
    int32_t epoch; /* or generation: that of what it owns */
    uint8_t owned[MOST_PARTITIONS];
    uint8_t *in;
    size_t in_size, in_room;
};

static struct member *members;
static struct pollfd *polls;
static int present, waiting; /* members in the group; answers on the way */
static int64_t requests;
static int32_t newest;       /* the highest epoch or generation that any of them has heard of */
static int32_t before;       /* the newest when the rebalance began */
static bool told;            /* whether the others may hear of the change by now */
static uint8_t topic_id[16];
static bool consumer_protocol;

static _Noreturn void refused(int api, int error) {
    char why[100];
    snprintf(why, sizeof why, "API %d answered with error %d", api, error);
    fail("members", why);
}

/* ---- connections ---- */

static void open_connection(struct member *member) {
    char host[64];
    const char *colon = strrchr(options.bootstrap, ':');
    snprintf(host, sizeof host, "%.*s", (int)(colon - options.bootstrap), options.bootstrap);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(colon + 1))};
    inet_pton(AF_INET, host, &address.sin_addr);
    member->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (member->socket < 0 || connect(member->socket, (struct sockaddr *)&address, sizeof address))
        fail("connect", strerror(errno));
    setsockopt(member->socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static void send_request(struct member *member, int api, const struct out *body) {
    struct out *frame = whole_request(api, body);
    for (size_t sent = 0; sent < frame->size;) {
        ssize_t more = write(member->socket, frame->bytes + sent, frame->size - sent);
        if (more <= 0) fail("write", strerror(errno));
        sent += more;
    }
    member->asked = api;
    waiting++;
    requests++;
}

/* Makes the broker create the topic that groups are kept in, and waits for it. */
static void find_coordinator(void) {
    struct out *body = new_body();
    put_text(body, options.group), put8(body, 0);
    send_request(&members[0], FIND_COORDINATOR, body);
}

static void coordinator_found(struct in *answer) {
    get32(answer);
    if (!get16(answer)) return;
    usleep(20000);
    find_coordinator();
}

/* ---- the classic protocol: JoinGroup v5, SyncGroup v3, Heartbeat v3, LeaveGroup v3 ---- */

static void subscription(struct out *to) {
    put16(to, 0), put32(to, 1), put_text(to, options.topic), put32(to, -1);
}

static void ask_to_join(struct member *member) {
    struct out *body = new_body(), metadata = {0};
    subscription(&metadata);
    put_text(body, options.group), put32(body, SESSION_MS), put32(body, REBALANCE_MS), put_text(body, member->id);
    put16(body, -1), put_text(body, "consumer"), put32(body, 1), put_text(body, "range");
    put_octets(body, metadata.bytes, metadata.size);
    send_request(member, JOIN_GROUP, body);
    free(metadata.bytes);
}

static void ask_heartbeat(struct member *member) {
    struct out *body = new_body();
    put_text(body, options.group), put32(body, member->epoch), put_text(body, member->id), put16(body, -1);
    send_request(member, HEARTBEAT, body);
}

static void ask_to_leave(struct member *member) {
    struct out *body = new_body();
    put_text(body, options.group), put32(body, 1), put_text(body, member->id), put16(body, -1);
    send_request(member, LEAVE_GROUP, body);
}

/* The leader deals the partitions out one by one, in the order in which it was told of the members. */
static void put_share(struct out *to, int place, int count) {
    int partitions = 0;
    for (int partition = place; partition < options.partitions; partition += count) partitions++;
    put16(to, 0), put32(to, 1), put_text(to, options.topic), put32(to, partitions);
    for (int partition = place; partition < options.partitions; partition += count) put32(to, partition);
    put32(to, -1);
}

static void ask_to_sync(struct member *member, int32_t generation, struct in *joined) {
    struct out *body = new_body();
    int count = get32(joined);
    put_text(body, options.group), put32(body, generation), put_text(body, member->id), put16(body, -1), put32(body, count);
    for (int place = 0; place < count; place++) {
        char id[ID_ROOM];
        struct out share = {0};
        get_text(joined, id, sizeof id), skip_text(joined), skip_octets(joined);
        put_share(&share, place, count);
        put_text(body, id), put_octets(body, share.bytes, share.size);
        free(share.bytes);
    }
    send_request(member, SYNC_GROUP, body);
}

static void all_heartbeat(void) {
    for (int i = 0; i < options.members; i++)
        if (members[i].present && !members[i].asked && members[i].epoch > 0) ask_heartbeat(&members[i]);
}

static void hear_of_it(void) {
    if (!told) all_heartbeat();
    told = true;
}

static void joined(struct member *member, struct in *answer) {
    get32(answer);
    int error = get16(answer);
    int32_t generation = get32(answer);
    skip_text(answer), skip_text(answer);
    if (error == LOADING || error == NOT_AVAILABLE || error == NOT_COORDINATOR) {
        usleep(20000);
        ask_to_join(member);
        return;
    }
    if (error && error != MEMBER_ID_REQUIRED) refused(JOIN_GROUP, error);
    get_text(answer, member->id, sizeof member->id);
    if (error) {
        ask_to_join(member);
        hear_of_it();
        return;
    }
    if (generation > newest) newest = generation;
    ask_to_sync(member, generation, answer);
    member->epoch = -generation; /* in the round, without its share yet */
}

static void synced(struct member *member, struct in *answer) {
    get32(answer);
    int error = get16(answer);
    if (error == REBALANCE_IN_PROGRESS) {
        ask_to_join(member);
        return;
    }
    if (error) refused(SYNC_GROUP, error);
    member->epoch = -member->epoch;
    memset(member->owned, 0, sizeof member->owned);
    if (get32(answer) <= 0) return;
    get16(answer);
    for (int topics = get32(answer); topics > 0; topics--) {
        skip_text(answer);
        for (int count = get32(answer); count > 0; count--) member->owned[get32(answer)] = 1;
    }
}

static void heartbeat_answered(struct member *member, struct in *answer) {
    get32(answer);
    int error = get16(answer);
    if (error == REBALANCE_IN_PROGRESS)
        ask_to_join(member);
    else if (error)
        refused(HEARTBEAT, error);
    else if (member->epoch <= before) /* it was quicker than the change */
        ask_heartbeat(member);
}

static void left(struct in *answer) {
    get32(answer);
    int error = get16(answer);
    if (error) refused(LEAVE_GROUP, error);
    hear_of_it();
}

/* ---- the consumer protocol: ConsumerGroupHeartbeat v1 ---- */

enum { JOINING = 0, LEAVING = -1 };

static void ask_consumer_heartbeat(struct member *member, int32_t epoch) {
    struct out *body = new_body();
    bool joins = epoch == JOINING;
    int owned = 0;
    for (int partition = 0; partition < options.partitions; partition++) owned += member->owned[partition];
    put_compact(body, options.group), put_compact(body, member->id), put32(body, epoch);
    put_count(body, -1), put_count(body, -1), put32(body, joins ? REBALANCE_MS : -1);
    if (joins)
        put_count(body, 1), put_compact(body, options.topic);
    else
        put_count(body, -1);
    put_count(body, -1), put_count(body, -1), put_count(body, owned ? 1 : 0);
    if (owned) {
        put(body, topic_id, sizeof topic_id), put_count(body, owned);
        for (int partition = 0; partition < options.partitions; partition++)
            if (member->owned[partition]) put32(body, partition);
        put8(body, 0);
    }
    put8(body, 0);
    send_request(member, CONSUMER_HEARTBEAT, body);
}

static void consumer_heartbeat_answered(struct member *member, struct in *answer) {
    get8(answer), get32(answer);
    int error = get16(answer);
    skip_compact(answer), skip_compact(answer);
    int32_t epoch = get32(answer);
    get32(answer);
    if (error == LOADING || error == NOT_AVAILABLE || error == NOT_COORDINATOR) {
        usleep(20000);
        ask_consumer_heartbeat(member, member->present ? member->epoch : LEAVING);
        return;
    }
    if (error) refused(CONSUMER_HEARTBEAT, error);
    if (epoch < 0) return;
    member->epoch = epoch;
    if (epoch > newest) newest = epoch;
    if (get8(answer) != 1) return;
    memset(member->owned, 0, sizeof member->owned);
    for (int topics = get_count(answer); topics > 0; topics--) {
        get(answer, topic_id, sizeof topic_id);
        for (int count = get_count(answer); count > 0; count--) member->owned[get32(answer)] = 1;
        get8(answer);
    }
}

/* ---- turns ---- */

static void take_frame(struct member *member, uint8_t *frame, size_t size) {
    struct in answer = {.at = frame + 4, .end = frame + size}; /* after the correlation id */
    int api = member->asked;
    member->asked = 0;
    waiting--;
    if (api == FIND_COORDINATOR) coordinator_found(&answer);
    if (api == JOIN_GROUP) joined(member, &answer);
    if (api == SYNC_GROUP) synced(member, &answer);
    if (api == HEARTBEAT) heartbeat_answered(member, &answer);
    if (api == LEAVE_GROUP) left(&answer);
    if (api == CONSUMER_HEARTBEAT) consumer_heartbeat_answered(member, &answer);
}

static void take_answers(struct member *member) {
    if (member->in_room - member->in_size < 65536) {
        member->in = realloc(member->in, member->in_room += 262144);
        if (!member->in) fail("memory", "no room for an answer");
    }
    ssize_t more = read(member->socket, member->in + member->in_size, member->in_room - member->in_size);
    if (more <= 0) fail("read", more ? strerror(errno) : "the broker closed the connection");
    member->in_size += more;
    while (member->in_size >= 4) {
        struct in head = {.at = member->in, .end = member->in + 4};
        size_t size = get32(&head);
        if (member->in_size < 4 + size) return;
        take_frame(member, member->in + 4, size);
        member->in_size -= 4 + size;
        memmove(member->in, member->in + 4 + size, member->in_size);
    }
}

/* One look at all connections; false if nothing came for so long. */
static bool turn(int patience_ms) {
    int found = poll(polls, options.members, patience_ms);
    if (found < 0) fail("poll", strerror(errno));
    for (int i = 0; i < options.members && found; i++)
        if (polls[i].revents) take_answers(&members[i]);
    return found > 0;
}

static bool settled(void) {
    int owned = 0;
    for (int i = 0; i < options.members; i++) {
        if (!members[i].present) continue;
        if (members[i].epoch != newest) return false;
        int own = 0;
        for (int partition = 0; partition < options.partitions; partition++) own += members[i].owned[partition];
        if (!own) return false;
        owned += own;
    }
    return !present || (newest > before && owned == options.partitions);
}

static void check_time(int64_t began_ns) {
    if (now_ns() - began_ns > options.timeout_s * NS_PER_S) fail("members", "the group did not settle in time");
}

static void settle_classic(int64_t began_ns) {
    while (waiting || !settled()) {
        /* If nothing comes, there may be a round on top of this one, of which some have not heard. */
        if (!turn(STALLED_MS)) all_heartbeat();
        check_time(began_ns);
    }
}

static void settle_consumer(int64_t began_ns) {
    for (;;) {
        while (waiting) turn(1000), check_time(began_ns);
        if (settled()) return;
        for (int i = 0; i < options.members; i++)
            if (members[i].present) ask_consumer_heartbeat(&members[i], members[i].epoch);
    }
}

static int64_t settle_since(int64_t began_ns) {
    if (consumer_protocol)
        settle_consumer(began_ns);
    else
        settle_classic(began_ns);
    return now_ns() - began_ns;
}

static void begin(void) {
    before = newest;
    told = false;
}

static void join(struct member *member) {
    member->present = true;
    member->epoch = 0;
    present++;
    memset(member->owned, 0, sizeof member->owned);
    if (consumer_protocol) {
        snprintf(member->id, sizeof member->id, "member-%d-%" PRId64, (int)(member - members), now_ns());
        ask_consumer_heartbeat(member, JOINING);
    } else {
        member->id[0] = 0;
        ask_to_join(member);
    }
}

static void leave(struct member *member) {
    member->present = false;
    present--;
    if (consumer_protocol)
        ask_consumer_heartbeat(member, LEAVING);
    else
        ask_to_leave(member);
}

int rebalance_members(void) {
    consumer_protocol = !strcmp(options.protocol, "consumer");
    if (options.partitions > MOST_PARTITIONS || options.members > options.partitions)
        fail("members", "at most 1000 partitions, and one for each member");
    members = calloc(options.members, sizeof *members);
    polls = calloc(options.members, sizeof *polls);
    if (!members || !polls) fail("memory", "no room for the members");
    for (int i = 0; i < options.members; i++) {
        open_connection(&members[i]);
        polls[i] = (struct pollfd){.fd = members[i].socket, .events = POLLIN};
    }
    find_coordinator();
    while (waiting) turn(1000);
    /* Before the clock starts: all but the last are in the group, and the last has come and gone once. */
    struct member *last = &members[options.members - 1];
    begin(), told = true;
    for (int i = 0; i < options.members; i++) join(&members[i]);
    settle_since(now_ns());
    begin(), leave(last), settle_since(now_ns());

    struct samples leaving = {0};
    requests = 0;
    stretch_start();
    int64_t deadline_ns = stretch.start_ns + (int64_t)(options.seconds * 1e9), began_ns;
    do {
        begin(), began_ns = now_ns(), join(last);
        samples_add(settle_since(began_ns));
        begin(), began_ns = now_ns(), leave(last);
        add_sample(&leaving, settle_since(began_ns));
    } while (options.messages ? (int64_t)samples.count < options.messages : now_ns() < deadline_ns);
    stretch.end_ns = now_ns();

    qsort(leaving.ns, leaving.count, sizeof *leaving.ns, by_value);
    char more[200];
    snprintf(more, sizeof more, ", \"leaving_p50_us\": %.1f, \"leaving_max_us\": %.1f, \"requests_per_rebalance\": %.1f",
             percentile_us(leaving.ns, leaving.count, 0.5), leaving.ns[leaving.count - 1] / 1e3,
             requests / (2.0 * samples.count));
    print_result("members", samples.count, 0, 0, more);
    for (int i = 0; i < options.members; i++)
        if (members[i].present) leave(&members[i]);
    while (waiting) turn(1000);
    return 0;
}
