/*
 * Messages from host 1 to host 2 of a central converter, by address and by region, and what is counted. On a busy machine a
 * message may be lost, or be late: so each is sent until it is heard, and those that come later are passed over, by their sizes.
 */
#include "bundle_check.h"

static struct heard heard;

/* Sends until it is heard, as the last of a turn. */
static void exchange(bundle_host *from, bundle_host *to, uint32_t address, const void *body, size_t size, unsigned flags,
                     long within_us, int wide)
{
    memset(&heard, 0, sizeof heard);
    while (heard.count == 0 || heard.size != size) {
        CHECK(bundle_send(from, address, body, size, flags, within_us) == BUNDLE_OK);
        said(from, wide);
        CHECK(bundle_turn(to, 20, hear, &heard) >= 0);
    }
    CHECK(size == 0 || memcmp(heard.body, body, size) == 0);
    /* In the classic format the address is the group: here host 2. */
    CHECK(heard.from.address == (wide ? address : 2));
    CHECK(heard.from.source == (wide ? 1u << 16 | 1001 : 0));
    CHECK(heard.from.priority == (wide && flags == BUNDLE_PRIORITY));
}

static void by_copy(bundle_host *from, bundle_host *to, int wide)
{
    struct bundle_from known;
    char room[8];
    int length;

    memset(&known, 255, sizeof known);
    do {
        CHECK(bundle_send(from, 64, "01234", 5, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        length = bundle_receive(to, &known, room, sizeof room, 20);
    } while (length != 5);
    CHECK(memcmp(room, "01234", 5) == 0);
    CHECK(known.address == (wide ? 64 : 2) && known.priority == 0 && known.reserved[0] == 0);
    /* Larger than its room: the rest is lost, and nothing behind is written. */
    room[4] = 9;
    do {
        CHECK(bundle_send(from, 64, "0123456789a", 11, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        length = bundle_receive(to, NULL, room, 4, 20);
    } while (length != BUNDLE_ELARGE || strstr(bundle_error(), "11 octets") == NULL);
    CHECK(memcmp(room, "0123\x09", 5) == 0);
    /* What came in a turn without a receiver waits. */
    do {
        CHECK(bundle_send(from, 64, "wait", 4, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        CHECK(bundle_turn(to, 20, NULL, NULL) == 0);
        length = bundle_receive(to, NULL, room, sizeof room, 0);
    } while (length != 4);
    CHECK(memcmp(room, "wait", 4) == 0);
}

static void by_region(bundle_host *from, bundle_host *to, int wide)
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
    said(to, wide);
    memset(&heard, 0, sizeof heard);
    while (heard.of_size[12] == 0) {
        CHECK(bundle_send_in(from, "north", 15, "of both: 205", 12, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        CHECK(bundle_turn(to, 20, hear, &heard) >= 0);
    }
    CHECK(!wide || heard.of[205] == heard.of_size[12]);
    /* Without the north only what the east has of it comes. */
    CHECK(bundle_unsubscribe(to, "north") == BUNDLE_OK && figures_of(to).wanted == 95 + 1);
    said(to, wide);
    memset(&heard, 0, sizeof heard);
    while (heard.of_size[14] == 0) {
        CHECK(bundle_send_in(from, "north", 14, "the north: 204", 13, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_send_in(from, "north", 19, "the east, 209.", 14, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        CHECK(bundle_turn(to, 20, hear, &heard) >= 0);
        CHECK(heard.of_size[13] == 0);
    }
    CHECK(bundle_unsubscribe(to, "east") == BUNDLE_OK && figures_of(to).wanted == 1);
    CHECK(bundle_unpublish(from, "north") == BUNDLE_OK);
}

static void counted(bundle_host *from, bundle_host *to, int wide)
{
    struct { struct bundle_figures figures; uint64_t behind; } all;
    static char page[1 << 16];
    char small[10];
    int length;

    all.figures = figures_of(from);
    CHECK(all.figures.sent > 0 && all.figures.bundles_sent > 0 && all.figures.dropped == 0 && all.figures.malformed == 0);
    CHECK(all.figures.dropped_priority == 0 && all.figures.level == 3 && all.figures.wanted == 0);
    CHECK((all.figures.sessions > 0) == wide);
    all.figures = figures_of(to);
    CHECK(all.figures.received > 0 && all.figures.bundles_received > 0 && all.figures.wanted == 1);
    /* As many as there is room for. */
    memset(&all, 255, sizeof all);
    all.figures.size = offsetof(struct bundle_figures, others);
    CHECK(bundle_figures(to, &all.figures) == BUNDLE_OK);
    CHECK(all.figures.received > 0 && all.figures.received < 1000000 && all.figures.others == UINT64_MAX);
    CHECK(all.figures.size == offsetof(struct bundle_figures, others));
    all.figures.size = sizeof all;
    CHECK(bundle_figures(to, &all.figures) == BUNDLE_OK && all.behind == UINT64_MAX);
    CHECK(all.figures.size == sizeof all);
    /* The page. */
    length = bundle_page(to, page, sizeof page);
    CHECK(length > 1000 && (size_t)length == strlen(page) && bundle_page(to, NULL, 0) == length);
    CHECK(strstr(page, "trunkline_converter_messages_total{way=\"received\"} ") != NULL);
    CHECK(bundle_page(to, small, sizeof small) == length && memcmp(small, page, 9) == 0 && small[9] == 0);
}

int main(int argc, char **argv)
{
    bundle_host *from, *to;
    int wide;

    CHECK(argc == 3);
    wide = is_wide(argv);
    from = opened(argv, 1);
    to = opened(argv, 2);
    CHECK(bundle_join(to, 64, 95) == BUNDLE_OK && bundle_join(to, 300, 300) == BUNDLE_OK);
    said(to, wide);
    said(from, wide);
    exchange(from, to, 64, "a message", 9, 0, BUNDLE_ANYTIME, wide);
    exchange(from, to, 95, NULL, 0, 0, BUNDLE_ANYTIME, wide);
    if (wide) {
        exchange(from, to, 66, "urgent", 6, BUNDLE_PRIORITY, 100, wide);
        exchange(from, to, 67, "as well", 7, BUNDLE_PRIORITY, BUNDLE_ANYTIME, wide);
    }
    by_copy(from, to, wide);

    /* What is left comes no more: what is sent after it does. */
    CHECK(bundle_leave(to, 64, 95) == BUNDLE_OK);
    said(to, wide);
    memset(&heard, 0, sizeof heard);
    while (heard.of_size[3] == 0) {
        CHECK(bundle_send(from, 64, "unwanted", 8, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_send(from, 300, "yes", 3, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        said(from, wide);
        CHECK(bundle_turn(to, 20, hear, &heard) >= 0);
        CHECK(heard.of_size[8] == 0);
    }

    by_region(from, to, wide);
    counted(from, to, wide);
    CHECK(bundle_close(from) == BUNDLE_OK && bundle_close(to) == BUNDLE_OK);
    return 0;
}
