/* Requests and answers of the protocol, as far as members need them. An answer that ends too early ends the run. */
#include "load_wire.h"
#include "load.h"
#include <stdlib.h>
#include <string.h>

enum { CONSUMER_HEARTBEAT = 68 };
static const struct { int api, version; } versions[] = {{10, 2}, {11, 5}, {12, 3}, {13, 3}, {14, 3}, {CONSUMER_HEARTBEAT, 1}};

void put(struct out *to, const void *bytes, size_t size) {
    if (to->size + size > to->room) {
        to->room = (to->size + size) * 2;
        to->bytes = realloc(to->bytes, to->room);
        if (!to->bytes) fail("memory", "no room for a request");
    }
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

void put8(struct out *to, int value) { put(to, &(uint8_t){value}, 1); }
void put16(struct out *to, int value) { put8(to, value >> 8), put8(to, value); }
void put32(struct out *to, int32_t value) { put16(to, value >> 16), put16(to, value); }
void put_text(struct out *to, const char *text) { put16(to, strlen(text)), put(to, text, strlen(text)); }
void put_octets(struct out *to, const void *bytes, size_t size) { put32(to, size), put(to, bytes, size); }

void put_count(struct out *to, int64_t count) {
    uint64_t value = count + 1;
    for (; value > 127; value >>= 7) put8(to, value | 128);
    put8(to, value);
}

void put_compact(struct out *to, const char *text) { put_count(to, strlen(text)), put(to, text, strlen(text)); }

struct out *new_body(void) {
    static struct out body;
    body.size = 0;
    return &body;
}

struct out *whole_request(int api, const struct out *body) {
    static struct out frame;
    int version = -1;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (versions[i].api == api) version = versions[i].version;
    frame.size = 0;
    put32(&frame, 0), put16(&frame, api), put16(&frame, version), put32(&frame, api), put_text(&frame, "load");
    if (api == CONSUMER_HEARTBEAT) put8(&frame, 0); /* no tags in the header */
    put(&frame, body->bytes, body->size);
    uint32_t size = frame.size - 4;
    for (int i = 0; i < 4; i++) frame.bytes[i] = size >> (24 - 8 * i);
    return &frame;
}

void get(struct in *from, void *into, size_t size) {
    if ((size_t)(from->end - from->at) < size) fail("answer", "it ends too early");
    if (into) memcpy(into, from->at, size);
    from->at += size;
}

int get8(struct in *from) {
    int8_t value;
    get(from, &value, 1);
    return value;
}

int get16(struct in *from) {
    uint8_t raw[2];
    get(from, raw, 2);
    return (int16_t)(raw[0] << 8 | raw[1]);
}

int32_t get32(struct in *from) {
    uint8_t raw[4];
    get(from, raw, 4);
    return (int32_t)((uint32_t)raw[0] << 24 | raw[1] << 16 | raw[2] << 8 | raw[3]);
}

void get_text(struct in *from, char *into, size_t room) {
    int size = get16(from);
    if (size < 0) size = 0;
    if ((size_t)size >= room) fail("answer", "a text is too long");
    get(from, into, size);
    into[size] = 0;
}

void skip_text(struct in *from) {
    int size = get16(from);
    if (size > 0) get(from, NULL, size);
}

void skip_octets(struct in *from) {
    int32_t size = get32(from);
    if (size > 0) get(from, NULL, size);
}

int64_t get_count(struct in *from) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t next = get8(from);
        value |= (uint64_t)(next & 127) << shift;
        if (next < 128) return (int64_t)value - 1;
    }
}

void skip_compact(struct in *from) {
    int64_t size = get_count(from);
    if (size > 0) get(from, NULL, size);
}
