/* All return codes except BUNDLE_ECONGESTED, which needs a congested network. */
#include "bundle_check.h"

struct nested {
    bundle_host *self, *other;
    unsigned calls;
};

/* Called within a turn of `self`. */
static void from_receiver(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    struct nested *nested = user;
    const struct bundle_range range = { 2, 3 };
    struct bundle_figures figures;
    char buffer[16];

    figures.size = sizeof figures;
    (void)from;
    nested->calls++;
    CHECK(bundle_close(nested->self) == BUNDLE_EBUSY);
    CHECK(bundle_join(nested->self, 1, 1) == BUNDLE_EBUSY && bundle_leave(nested->self, 1, 1) == BUNDLE_EBUSY);
    CHECK(bundle_define(nested->self, "x", &range, 1) == BUNDLE_EBUSY);
    CHECK(bundle_publish(nested->self, "x") == BUNDLE_EBUSY && bundle_unpublish(nested->self, "x") == BUNDLE_EBUSY);
    CHECK(bundle_subscribe(nested->self, "x") == BUNDLE_EBUSY);
    CHECK(bundle_unsubscribe(nested->self, "x") == BUNDLE_EBUSY);
    CHECK(bundle_send(nested->self, 1, body, size, 0, BUNDLE_ANYTIME) == BUNDLE_EBUSY);
    CHECK(bundle_send_in(nested->self, "x", 0, body, size, 0, BUNDLE_ANYTIME) == BUNDLE_EBUSY);
    CHECK(bundle_turn(nested->self, 0, from_receiver, user) == BUNDLE_EBUSY);
    CHECK(bundle_receive(nested->self, NULL, buffer, sizeof buffer, 0) == BUNDLE_EBUSY);
    CHECK(bundle_saturate(nested->self, 1) == BUNDLE_EBUSY);
    CHECK(bundle_figures(nested->self, &figures) == BUNDLE_EBUSY);
    CHECK(bundle_page(nested->self, buffer, sizeof buffer) == BUNDLE_EBUSY);
    CHECK(strcmp(bundle_error(), bundle_text(BUNDLE_EBUSY)) == 0);
    CHECK(bundle_wake(nested->self) == BUNDLE_OK);
    /* Calls for another host succeed, as a gateway needs. */
    CHECK(bundle_send(nested->other, 1, "onwards", 7, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
}

/* Invalid settings, one at a time. */
static void refused(char **argv)
{
    struct at at;
    struct { struct bundle_settings settings; uint64_t more; } later;
    bundle_host *host = NULL;
    int format2 = is_format2(argv);

#define REFUSED(field, value, code, word) do { \
        host_at(&at, argv, 2); \
        at.settings.field = (value); \
        CHECK(bundle_open(&host, &at.settings) == (code) && host == NULL); \
        CHECK(strstr(bundle_error(), (word)) != NULL); \
    } while (0)
    REFUSED(size, 0, BUNDLE_EARG, "size");
    REFUSED(size, sizeof(size_t) - 1, BUNDLE_EARG, "size");
    REFUSED(size, 1u << 20, BUNDLE_EARG, "size");
    REFUSED(format, 2, BUNDLE_EARG, "format");
    REFUSED(timers, 3, BUNDLE_EARG, "timers");
    REFUSED(pairs, 2, BUNDLE_EARG, "pairs");
    REFUSED(number, format2 ? 65536 : 17, BUNDLE_EARG, "number");
    REFUSED(site, format2 ? 65536 : 1, BUNDLE_EARG, "site");
    REFUSED(congestion, format2 ? 2 : 1, BUNDLE_EARG, "congestion");
    REFUSED(longest, format2 ? 511 : 1472, BUNDLE_EARG, "longest");
    REFUSED(longest, 65508, BUNDLE_EARG, "longest");
    REFUSED(interval_us, 99, BUNDLE_EARG, "interval_us");
    REFUSED(interval_us, 3600000001u, BUNDLE_EARG, "interval_us");
    REFUSED(deadline_us, 1000001, BUNDLE_EARG, "deadline_us");
    REFUSED(priority_deadline_us, 1000001, BUNDLE_EARG, "priority_deadline_us");
    REFUSED(reserved, 1, BUNDLE_EARG, "reserved");
    REFUSED(central, "nowhere", BUNDLE_EARG, "central");
    REFUSED(central, "\xff", BUNDLE_EARG, "central");
    REFUSED(listen, "127.0.0.1:65536", BUNDLE_EARG, "listen");
    REFUSED(interface, "lo", BUNDLE_EARG, "interface");
    REFUSED(listen, "192.0.2.1:6002", BUNDLE_ESYSTEM, "192.0.2.1");
    CHECK(bundle_open(&host, NULL) == BUNDLE_EARG);

    /* Settings of a later version: unknown fields that are 0, and one that is not. */
    host_at(&at, argv, 2);
    later.settings = at.settings;
    later.settings.size = sizeof later;
    later.more = 0;
    CHECK(bundle_open(&host, &later.settings) == BUNDLE_OK && bundle_close(host) == BUNDLE_OK);
    later.more = 1;
    CHECK(bundle_open(&host, &later.settings) == BUNDLE_EARG);
    /* Settings of earlier versions, with other data behind them. */
    later.settings.interval_us = 1;
    later.settings.size = offsetof(struct bundle_settings, interval_us);
    CHECK(bundle_open(&host, &later.settings) == BUNDLE_OK && bundle_close(host) == BUNDLE_OK);
    later.settings.size = offsetof(struct bundle_settings, retell_ms);
    CHECK(bundle_open(&host, &later.settings) == BUNDLE_OK && bundle_close(host) == BUNDLE_OK);
    /* The interval of the central converter. */
    host_at(&at, argv, 2);
    at.settings.interval_us = 20000;
    CHECK(bundle_open(&host, &at.settings) == BUNDLE_OK && bundle_close(host) == BUNDLE_OK);
}

/*
 * Here an ordinary message waits one second. Repeat until it was observed to wait, in case the machine is too slow. A priority
 * message takes it along at once.
 */
static void deadlines(char **argv)
{
    bundle_host *host = NULL;
    struct at at;

    if (is_format2(argv))
        return; /* a waiting message may leave with a hello */
    host_at(&at, argv, 2);
    at.settings.timers = BUNDLE_TICK;
    at.settings.deadline_us = 1;
    CHECK(bundle_open(&host, &at.settings) == BUNDLE_EARG && strstr(bundle_error(), "deadline_us") != NULL);
    at.settings.timers = BUNDLE_PROCESSOR;
    at.settings.deadline_us = 1000000;
    at.settings.pairs = 1;
    CHECK(bundle_open(&host, &at.settings) == BUNDLE_OK);
    do {
        CHECK(bundle_send(host, 4, "waits", 5, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_turn(host, 0, NULL, NULL) == 0);
    } while (!figures_of(host).saying);
    CHECK(bundle_send(host, 5, "leaves", 6, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
    CHECK(bundle_turn(host, 0, NULL, NULL) == 0 && !figures_of(host).saying);
    CHECK(bundle_close(host) == BUNDLE_OK);
    /* A priority message may wait, too. */
    at.settings.priority_deadline_us = 1000000;
    CHECK(bundle_open(&host, &at.settings) == BUNDLE_OK);
    do {
        CHECK(bundle_send(host, 5, "waits", 5, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_turn(host, 0, NULL, NULL) == 0);
    } while (!figures_of(host).saying);
    CHECK(bundle_close(host) == BUNDLE_OK);
}

static void regions(bundle_host *host)
{
    static struct bundle_range many[1025];
    const struct bundle_range good[] = { { 10, 19 }, { 30, 39 } }, bad[] = { { 10, 19 }, { 19, 29 } };
    unsigned n;

    for (n = 0; n < 1025; n++)
        many[n].first = many[n].last = 2 * n;
    CHECK(bundle_define(host, NULL, good, 2) == BUNDLE_EARG && bundle_define(host, "r", NULL, 2) == BUNDLE_EARG);
    CHECK(bundle_define(host, "\xff", good, 2) == BUNDLE_EARG);
    CHECK(bundle_define(host, "", good, 2) == BUNDLE_EREGION && bundle_define(host, "r", good, 0) == BUNDLE_EREGION);
    CHECK(bundle_define(host, "r", bad, 2) == BUNDLE_EREGION);
    CHECK(bundle_define(host, "r", many, 1025) == BUNDLE_EREGION && bundle_define(host, "m", many, 1024) == 0);
    CHECK(bundle_define(host, "r", good, 2) == BUNDLE_OK && bundle_define(host, "r", good, 2) == BUNDLE_OK);
    CHECK(bundle_define(host, "r", good, 1) == BUNDLE_EREGION);
    CHECK(bundle_publish(host, "s") == BUNDLE_EREGION && bundle_unpublish(host, "s") == BUNDLE_EREGION);
    CHECK(bundle_subscribe(host, "s") == BUNDLE_EREGION && bundle_unsubscribe(host, "s") == BUNDLE_EREGION);
    CHECK(bundle_publish(host, NULL) == BUNDLE_EARG && bundle_unpublish(host, NULL) == BUNDLE_EARG);
    CHECK(bundle_subscribe(host, NULL) == BUNDLE_EARG && bundle_unsubscribe(host, NULL) == BUNDLE_EARG);
    CHECK(bundle_send_in(host, "s", 0, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_EREGION);
    CHECK(bundle_send_in(host, "r", 0, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_EREGION);
    CHECK(bundle_publish(host, "r") == BUNDLE_OK);
    CHECK(bundle_send_in(host, NULL, 0, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_EARG);
    CHECK(bundle_send_in(host, "r", 19, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
    CHECK(bundle_send_in(host, "r", 20, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_EREGION);
    CHECK(strstr(bundle_error(), "addresses") != NULL);
    CHECK(bundle_unpublish(host, "r") == BUNDLE_OK);
    CHECK(bundle_send_in(host, "r", 0, "?", 1, 0, BUNDLE_ANYTIME) == BUNDLE_EREGION);
}

int main(int argc, char **argv)
{
    static char large[70000];
    struct bundle_figures figures;
    struct nested nested;
    bundle_host *host, *other, *third = NULL;
    struct at at;
    char buffer[8] = "";
    int format2, code;

    CHECK(argc == 3);
    format2 = is_format2(argv);
    CHECK(*bundle_error() == 0);
    for (code = BUNDLE_EBUG; code <= BUNDLE_OK; code++)
        CHECK(strcmp(bundle_text(code), "unknown code") != 0 && strcmp(bundle_text(code), bundle_text(code - 1)) != 0);
    CHECK(strcmp(bundle_text(BUNDLE_EBUG - 1), "unknown code") == 0);
    refused(argv);
    deadlines(argv);

    host = opened(argv, 1);
    other = opened(argv, 2);
    if (!format2) {
        /* A host uses its port exclusively. */
        host_at(&at, argv, 1);
        CHECK(bundle_open(&third, &at.settings) == BUNDLE_ESYSTEM && third == NULL);
    }

    /* Invalid arguments. */
    CHECK(bundle_join(host, 2, 1) == BUNDLE_EARG && bundle_leave(host, 2, 1) == BUNDLE_EARG);
    CHECK(bundle_send(host, 1, NULL, 1, 0, BUNDLE_ANYTIME) == BUNDLE_EARG);
    CHECK(bundle_send(host, 1, buffer, 1, 2, BUNDLE_ANYTIME) == BUNDLE_EARG);
    CHECK(bundle_send(host, 1, buffer, 1, 0, 500) == BUNDLE_EARG);
    CHECK(bundle_send(host, 1, buffer, (size_t)-1, 0, BUNDLE_ANYTIME) == BUNDLE_EARG);
    CHECK(bundle_receive(host, NULL, NULL, 1, 0) == BUNDLE_EARG);
    CHECK(bundle_figures(host, NULL) == BUNDLE_EARG);
    figures.size = sizeof figures.size;
    CHECK(bundle_figures(host, &figures) == BUNDLE_EARG);
    CHECK(bundle_page(host, NULL, 1) == BUNDLE_EARG);

    /* Unsupported by format 1. */
    CHECK(bundle_join(host, 65536, 65537) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));
    CHECK(bundle_leave(host, 65536, 65537) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));
    CHECK(bundle_saturate(host, 1000) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));
    CHECK(bundle_saturate(host, -1) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));
    CHECK(bundle_send(host, 2, buffer, 1, BUNDLE_PRIORITY, 500) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));
    CHECK(bundle_send(host, 65536, buffer, 1, 0, BUNDLE_ANYTIME) == (format2 ? BUNDLE_OK : BUNDLE_EFORMAT));

    /* Lengths of control messages, and too long ones. */
    memset(large, '.', sizeof large);
    CHECK(bundle_send(host, 1, large, 20, 0, BUNDLE_ANYTIME) == (format2 ? BUNDLE_OK : BUNDLE_ECONTROL));
    CHECK(bundle_send(host, 1, large, 22, 0, BUNDLE_ANYTIME) == (format2 ? BUNDLE_OK : BUNDLE_ECONTROL));
    CHECK(bundle_send(host, 1, large, 21, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
    CHECK(bundle_send(host, 1, large, sizeof large, 0, BUNDLE_ANYTIME) == BUNDLE_ELARGE);

    regions(host);

    /* Timeouts and wake-ups. */
    CHECK(bundle_receive(other, NULL, buffer, sizeof buffer, 0) == BUNDLE_ETIME);
    CHECK(bundle_receive(other, NULL, buffer, sizeof buffer, 20) == BUNDLE_ETIME);
    CHECK(bundle_wake(other) == BUNDLE_OK && bundle_wake(other) == BUNDLE_OK);
    CHECK(bundle_receive(other, NULL, buffer, sizeof buffer, -1) == BUNDLE_EWOKEN);
    CHECK(bundle_receive(other, NULL, buffer, sizeof buffer, 0) == BUNDLE_ETIME);
    CHECK(bundle_wake(other) == BUNDLE_OK && bundle_turn(other, -1, record, NULL) == 0);

    /* Calls within a receiver function. */
    nested.self = other;
    nested.other = host;
    nested.calls = 0;
    CHECK(bundle_join(other, 7, 7) == BUNDLE_OK);
    while (nested.calls == 0) {
        CHECK(bundle_send(host, 7, "a question", 10, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        CHECK(bundle_turn(host, 1, NULL, NULL) == 0 && bundle_turn(other, 1, from_receiver, &nested) >= 0);
    }

    /* Without turns the queue fills up. */
    do
        code = bundle_send(host, 1, large, format2 ? 1000 : 60000, 0, BUNDLE_ANYTIME);
    while (code == BUNDLE_OK);
    CHECK(code == BUNDLE_EFULL);
    figures = figures_of(host);
    CHECK(figures.dropped >= 2 && figures.saying == 1);

    CHECK(bundle_close(host) == BUNDLE_OK && bundle_close(other) == BUNDLE_OK);
    return 0;
}
