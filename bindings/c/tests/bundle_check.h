/*
 * What the tests of bundle.h share. Each is run as PROGRAM FORMAT ADDRESS, where a central converter hears hosts at
 * ADDRESS:3458, and hosts 1 and 2 of the classic format at ADDRESS:6001 and ADDRESS:6002.
 */
#ifndef BUNDLE_CHECK_H
#define BUNDLE_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bundle.h>

/* Ends the program with 1 if it does not hold. */
#define CHECK(holds) check((holds) != 0, #holds, __FILE__, __LINE__)

static void check(int holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s; the last error: %s\n", file, line, what, bundle_error());
    exit(1);
}

/* Host 1 or 2 of the classic format, 1001 or 1002 of the wide one. */
struct at {
    char central[32], listen[32];
    struct bundle_settings settings;
};

static inline int is_wide(char **argv)
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
    at->settings.format = is_wide(argv) ? BUNDLE_WIDE : BUNDLE_CLASSIC;
    at->settings.number = is_wide(argv) ? 1000 + n : n;
    if (!is_wide(argv))
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

/* Has turns until all that the host said has left; in the wide format, is heard of. */
static inline void said(bundle_host *host, int wide)
{
    struct bundle_figures figures;

    do {
        CHECK(bundle_turn(host, 5, NULL, NULL) == 0);
        figures = figures_of(host);
    } while (figures.saying || (wide && !figures.sessions));
}

/* The last message that was heard, and how many were; of each address modulo 512, and of each size up to 14. */
struct heard {
    unsigned count, of[512], of_size[16];
    struct bundle_from from;
    unsigned char body[65536];
    size_t size;
};

static inline void hear(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    struct heard *heard = user;

    CHECK(body != NULL && size <= sizeof heard->body);
    heard->count++;
    heard->of[from->address % 512]++;
    heard->of_size[size < 15 ? size : 15]++;
    heard->from = *from;
    heard->size = size;
    memcpy(heard->body, body, size);
}

#endif
