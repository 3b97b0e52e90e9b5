/*
 * A tank that drives through a world of 16 by 16 cells and sees the tanks in its half. Start two of them at one central converter
 * in format 2; each ends when both have seen the other COUNT times.
 *
 *     bundle_tank NUMBER [COUNT [CENTRAL]]        100 times, 127.0.0.1:3458
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bundle.h>

enum { CELLS = 16, FIRST = 70000, RADIO = 69999, PERIOD_MS = 20, STEPS = 5 };

/* The state of a tank, one octet per field, independent of byte order. */
enum { WHO, ROW, COLUMN, STATE = 8 };

struct tank {
    unsigned char state[STATE];
    int seen, wanted, other_is_done;
};

static void need(int answer, const char *what)
{
    if (answer >= 0)
        return;
    fprintf(stderr, "bundle_tank: %s: %s\n", what, bundle_error());
    exit(1);
}

/* Called with each message, which is still in the datagram. Replies are sent after the turn. */
static void see(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    struct tank *tank = user;
    const unsigned char *state = body;

    if (from->address == RADIO)
        tank->other_is_done = 1;
    else if (size == STATE && ++tank->seen <= 3)
        printf("host %u of site %u is in cell %u, %u\n", from->source & 0xffff, from->source >> 16, state[ROW], state[COLUMN]);
}

/* Drives back and forth, a cell every few steps. */
static unsigned char to_and_fro(unsigned step)
{
    const unsigned at = step / STEPS % (2 * CELLS - 2);

    return (unsigned char)(at < CELLS ? at : 2 * CELLS - 2 - at);
}

int main(int argc, char **argv)
{
    /* A row has CELLS addresses. The middle rows belong to both halves, so that tanks near the border see across it. */
    const struct bundle_range north = { FIRST, FIRST + CELLS * 9 - 1 };
    const struct bundle_range south = { FIRST + CELLS * 7, FIRST + CELLS * CELLS - 1 };
    const struct bundle_range world = { FIRST, FIRST + CELLS * CELLS - 1 }, radio = { RADIO, RADIO };
    struct bundle_settings settings = BUNDLE_SETTINGS;
    struct tank tank = { { 0 }, 0, 100, 0 };
    const char *side = NULL, *now;
    bundle_host *host;
    unsigned step;

    if (argc < 2 || atoi(argv[1]) < 1 || atoi(argv[1]) > 65535) {
        fprintf(stderr, "usage: bundle_tank NUMBER [COUNT [CENTRAL]], NUMBER 1 to 65535\n");
        return 2;
    }
    settings.format = BUNDLE_WIDE;
    settings.timers = BUNDLE_PROCESSOR;
    settings.number = (unsigned)atoi(argv[1]);
    if (argc > 2)
        tank.wanted = atoi(argv[2]);
    if (argc > 3)
        settings.central = argv[3];
    need(bundle_open(&host, &settings), "bundle_open");
    need(bundle_define(host, "north", &north, 1), "bundle_define");
    need(bundle_define(host, "south", &south, 1), "bundle_define");
    need(bundle_define(host, "world", &world, 1), "bundle_define");
    need(bundle_define(host, "radio", &radio, 1), "bundle_define");
    need(bundle_publish(host, "world"), "bundle_publish");
    need(bundle_publish(host, "radio"), "bundle_publish");
    need(bundle_subscribe(host, "radio"), "bundle_subscribe");
    for (step = 0; tank.seen < tank.wanted || !tank.other_is_done; step++) {
        tank.state[WHO] = (unsigned char)settings.number;
        tank.state[ROW] = to_and_fro(step);
        tank.state[COLUMN] = (unsigned char)(settings.number % CELLS);
        now = tank.state[ROW] < CELLS / 2 ? "north" : "south";
        if (side != now) {
            need(bundle_subscribe(host, now), "bundle_subscribe");
            if (side)
                need(bundle_unsubscribe(host, side), "bundle_unsubscribe");
            side = now;
        }
        /* A lost state is replaced by the next one. */
        bundle_send_in(host, "world", tank.state[ROW] * CELLS + tank.state[COLUMN], tank.state, STATE, 0, BUNDLE_ANYTIME);
        /* This message must arrive: it has priority, and leaves within 1 ms. */
        if (tank.seen >= tank.wanted)
            bundle_send_in(host, "radio", 0, "enough", 6, BUNDLE_PRIORITY, 1000);
        need(bundle_turn(host, PERIOD_MS, see, &tank), "bundle_turn");
    }
    bundle_send_in(host, "radio", 0, "enough", 6, BUNDLE_PRIORITY, 1000);
    need(bundle_close(host), "bundle_close");
    printf("seen %d times, in %u steps\n", tank.seen, step);
    return 0;
}
