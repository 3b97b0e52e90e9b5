/*
 * Helpers for the tests of bundle.h. Each test runs as PROGRAM FORMAT ADDRESS. A central converter receives from hosts at
 * ADDRESS:3458; hosts 1 and 2 in format 1 receive at ADDRESS:6001 and ADDRESS:6002.
 */
#ifndef BUNDLE_CHECK_H
#define BUNDLE_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bundle.h>

/* Exits with status 1 if a condition is false. */
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)

static void check(int condition, const char *what, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: check failed: %s; last error: %s\n", file, line, what, bundle_error());
    exit(1);
}

/* Host 1 or 2 in format 1, 1001 or 1002 in format 2. */
struct at {
    char central[32], listen[32];
    struct bundle_settings settings;
};

static inline int is_format2(char **argv)
{
    return strcmp(argv[1], "wide") == 0;
}

static inline void host_at(struct at *at, char **argv, unsigned n)
{
    const struct bundle_settings begin = BUNDLE_SETTINGS;

    at->settings = begin;
    snprintf(at->central, sizeof at->central, "%s:3458", argv[2]);
    snprintf(at->listen, sizeof at->listen, "%s:%u", argv[2], 6000 + n);
    at->settings.central = at->central;
    at->settings.timers = BUNDLE_PROCESSOR;
    at->settings.format = is_format2(argv) ? BUNDLE_WIDE : BUNDLE_CLASSIC;
    at->settings.number = is_format2(argv) ? 1000 + n : n;
    if (!is_format2(argv))
        at->settings.listen = at->listen;
}

static inline bundle_host *opened(char **argv, unsigned n)
{
    struct at at;
    bundle_host *host = NULL;

    host_at(&at, argv, n);
    CHECK(bundle_open(&host, &at.settings) == BUNDLE_OK && host != NULL);
    return host;
}

static inline struct bundle_figures figures_of(bundle_host *host)
{
    struct bundle_figures figures;

    figures.size = sizeof figures;
    CHECK(bundle_figures(host, &figures) == BUNDLE_OK);
    return figures;
}

/* Runs turns until everything has been sent and, in format 2, confirmed. */
static inline void drain(bundle_host *host, int format2)
{
    struct bundle_figures figures;

    do {
        CHECK(bundle_turn(host, 5, NULL, NULL) == 0);
        figures = figures_of(host);
    } while (figures.saying || (format2 && !figures.sessions));
}

/* The last received message, and counts: of all messages, per address modulo 512, and per size up to 14. */
struct received {
    unsigned count, of[512], of_size[16];
    struct bundle_from from;
    unsigned char body[65536];
    size_t size;
};

static inline void record(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    struct received *received = user;

    CHECK(body != NULL && size <= sizeof received->body);
    received->count++;
    received->of[from->address % 512]++;
    received->of_size[size < 15 ? size : 15]++;
    received->from = *from;
    received->size = size;
    memcpy(received->body, body, size);
}

#endif
