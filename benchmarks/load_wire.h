/* Requests and answers of the protocol, as far as members need them: big-endian numbers, texts, compact texts. */
#ifndef CORDWOOD_LOAD_WIRE_H
#define CORDWOOD_LOAD_WIRE_H
#include <stddef.h>
#include <stdint.h>

struct out { uint8_t *bytes; size_t size, room; };

void put(struct out *to, const void *bytes, size_t size);
void put8(struct out *to, int value);
void put16(struct out *to, int value);
void put32(struct out *to, int32_t value);
void put_text(struct out *to, const char *text);
void put_octets(struct out *to, const void *bytes, size_t size);
void put_count(struct out *to, int64_t count); /* of a compact array or text; -1: there is none */
void put_compact(struct out *to, const char *text);

struct out *new_body(void); /* empty; valid until the next one */
struct out *whole_request(int api, const struct out *body); /* with size and header, in the version that members speak */

struct in { const uint8_t *at, *end; };

void get(struct in *from, void *into, size_t size);
int get8(struct in *from);
int get16(struct in *from);
int32_t get32(struct in *from);
void get_text(struct in *from, char *into, size_t room);
void skip_text(struct in *from);
void skip_octets(struct in *from);
int64_t get_count(struct in *from);
void skip_compact(struct in *from);

#endif
