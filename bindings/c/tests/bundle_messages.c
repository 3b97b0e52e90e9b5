/*
 * Messages from host 1 to host 2 of a central converter, by address and by region, and their counters. On a busy machine messages
 * may be lost or late: each one is sent until it arrives, and later copies are recognized by their sizes.
 */
#include "bundle_check.h"

static struct received received;

/* Sends a message until it arrives as the last one of a turn. */
static void exchange(bundle_host *from, bundle_host *to, uint32_t address, const void *body, size_t size, unsigned flags,
                     long within_us, int format2)
{
    memset(&received, 0, sizeof received);
    while (received.count == 0 || received.size != size) {
        CHECK(bundle_send(from, address, body, size, flags, within_us) == BUNDLE_OK);
        drain(from, format2);
        CHECK(bundle_turn(to, 20, record, &received) >= 0);
    }
    CHECK(size == 0 || memcmp(received.body, body, size) == 0);
    /* In format 1 the address is the group: here host 2. */
    CHECK(received.from.address == (format2 ? address : 2));
    CHECK(received.from.source == (format2 ? 1u << 16 | 1001 : 0));
    CHECK(received.from.priority == (format2 && flags == BUNDLE_PRIORITY));
}

static void by_copy(bundle_host *from, bundle_host *to, int format2)
{
    struct bundle_from known;
    char buffer[8];
    int length;

    memset(&known, 255, sizeof known);
    do {
        CHECK(bundle_send(from, 64, "01234", 5, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        length = bundle_receive(to, &known, buffer, sizeof buffer, 20);
    } while (length != 5);
    CHECK(memcmp(buffer, "01234", 5) == 0);
    CHECK(known.address == (format2 ? 64 : 2) && known.priority == 0 && known.reserved[0] == 0);
    /* Longer than the buffer: the rest is lost, and nothing is written behind the buffer. */
    buffer[4] = 9;
    do {
        CHECK(bundle_send(from, 64, "0123456789a", 11, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        length = bundle_receive(to, NULL, buffer, 4, 20);
    } while (length != BUNDLE_ELARGE || strstr(bundle_error(), "11 octets") == NULL);
    CHECK(memcmp(buffer, "0123\x09", 5) == 0);
    /* Messages of a turn without a receiver function wait. */
    do {
        CHECK(bundle_send(from, 64, "wait", 4, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        CHECK(bundle_turn(to, 20, NULL, NULL) == 0);
        length = bundle_receive(to, NULL, buffer, sizeof buffer, 0);
    } while (length != 4);
    CHECK(memcmp(buffer, "wait", 4) == 0);
}

static void by_region(bundle_host *from, bundle_host *to, int format2)
{
    const struct bundle_range north[] = { { 100, 109 }, { 200, 209 } }, east[] = { { 205, 299 } };
    bundle_host *hosts[2];
    unsigned n;

    hosts[0] = from;
    hosts[1] = to;
    for (n = 0; n < 2; n++) {
        CHECK(bundle_define(hosts[n], "north", north, 2) == BUNDLE_OK);
        CHECK(bundle_define(hosts[n], "east", east, 1) == BUNDLE_OK);
    }
    CHECK(bundle_publish(from, "north") == BUNDLE_OK);
    CHECK(bundle_subscribe(to, "north") == BUNDLE_OK && bundle_subscribe(to, "east") == BUNDLE_OK);
    CHECK(figures_of(to).wanted == 10 + 100 + 1);
    drain(to, format2);
    memset(&received, 0, sizeof received);
    while (received.of_size[12] == 0) {
        CHECK(bundle_send_in(from, "north", 15, "of both: 205", 12, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        CHECK(bundle_turn(to, 20, record, &received) >= 0);
    }
    CHECK(!format2 || received.of[205] == received.of_size[12]);
    /* Without the north only its addresses in the east remain. */
    CHECK(bundle_unsubscribe(to, "north") == BUNDLE_OK && figures_of(to).wanted == 95 + 1);
    drain(to, format2);
    memset(&received, 0, sizeof received);
    while (received.of_size[14] == 0) {
        CHECK(bundle_send_in(from, "north", 14, "the north: 204", 13, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_send_in(from, "north", 19, "the east, 209.", 14, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        CHECK(bundle_turn(to, 20, record, &received) >= 0);
        CHECK(received.of_size[13] == 0);
    }
    CHECK(bundle_unsubscribe(to, "east") == BUNDLE_OK && figures_of(to).wanted == 1);
    CHECK(bundle_unpublish(from, "north") == BUNDLE_OK);
}

static void counted(bundle_host *from, bundle_host *to, int format2)
{
    struct { struct bundle_figures figures; uint64_t behind; } all;
    static char page[1 << 16];
    char small[10];
    int length;

    all.figures = figures_of(from);
    CHECK(all.figures.sent > 0 && all.figures.bundles_sent > 0 && all.figures.dropped == 0 && all.figures.malformed == 0);
    CHECK(all.figures.dropped_priority == 0 && all.figures.level == 3 && all.figures.wanted == 0);
    CHECK((all.figures.sessions > 0) == format2);
    all.figures = figures_of(to);
    CHECK(all.figures.received > 0 && all.figures.bundles_received > 0 && all.figures.wanted == 1);
    /* As many counters as fit. */
    memset(&all, 255, sizeof all);
    all.figures.size = offsetof(struct bundle_figures, others);
    CHECK(bundle_figures(to, &all.figures) == BUNDLE_OK);
    CHECK(all.figures.received > 0 && all.figures.received < 1000000 && all.figures.others == UINT64_MAX);
    CHECK(all.figures.size == offsetof(struct bundle_figures, others));
    all.figures.size = sizeof all;
    CHECK(bundle_figures(to, &all.figures) == BUNDLE_OK && all.behind == UINT64_MAX);
    CHECK(all.figures.size == sizeof all);
    /* The metrics. */
    length = bundle_page(to, page, sizeof page);
    CHECK(length > 1000 && (size_t)length == strlen(page) && bundle_page(to, NULL, 0) == length);
    CHECK(strstr(page, "trunkline_converter_messages_total{way=\"received\"} ") != NULL);
    CHECK(bundle_page(to, small, sizeof small) == length && memcmp(small, page, 9) == 0 && small[9] == 0);
}

int main(int argc, char **argv)
{
    bundle_host *from, *to;
    int format2;

    CHECK(argc == 3);
    format2 = is_format2(argv);
    from = opened(argv, 1);
    to = opened(argv, 2);
    CHECK(bundle_join(to, 64, 95) == BUNDLE_OK && bundle_join(to, 300, 300) == BUNDLE_OK);
    drain(to, format2);
    drain(from, format2);
    exchange(from, to, 64, "a message", 9, 0, BUNDLE_ANYTIME, format2);
    exchange(from, to, 95, NULL, 0, 0, BUNDLE_ANYTIME, format2);
    if (format2) {
        exchange(from, to, 66, "urgent", 6, BUNDLE_PRIORITY, 100, format2);
        exchange(from, to, 67, "as well", 7, BUNDLE_PRIORITY, BUNDLE_ANYTIME, format2);
    }
    by_copy(from, to, format2);

    /* After a leave no message of the range arrives, but later messages to other addresses do. */
    CHECK(bundle_leave(to, 64, 95) == BUNDLE_OK);
    drain(to, format2);
    memset(&received, 0, sizeof received);
    while (received.of_size[3] == 0) {
        CHECK(bundle_send(from, 64, "unwanted", 8, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_send(from, 300, "yes", 3, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        drain(from, format2);
        CHECK(bundle_turn(to, 20, record, &received) >= 0);
        CHECK(received.of_size[8] == 0);
    }

    by_region(from, to, format2);
    counted(from, to, format2);
    CHECK(bundle_close(from) == BUNDLE_OK && bundle_close(to) == BUNDLE_OK);
    return 0;
}
