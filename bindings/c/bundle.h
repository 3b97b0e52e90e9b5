/*
 * bundle.h - the C interface of the bundle converter, which carries many small simulation messages in few packets.
 *
 * A host is an endpoint at a central converter (`trunkline converter central`). It joins message addresses, by number or by
 * named region as in HLA, sends messages to them, and receives those of other hosts: through a callback that reads each message
 * from the datagram without a copy, or copied into a buffer.
 *
 *     struct bundle_settings settings = BUNDLE_SETTINGS;
 *     bundle_host *host;
 *     settings.format = BUNDLE_WIDE;
 *     settings.number = 1001;
 *     if (bundle_open(&host, &settings) != BUNDLE_OK)
 *         fail(bundle_error());
 *     bundle_join(host, 70000, 70063);
 *     for (;;) {
 *         bundle_send(host, 70064, state, sizeof state, 0, BUNDLE_ANYTIME);
 *         bundle_turn(host, 20, take, NULL);      waits up to 20 ms, and calls take() with each message
 *     }
 *
 * Formats. BUNDLE_CLASSIC is bundle format 1 (classic), BUNDLE_WIDE is bundle format 2. "Format 1" and "format 2" below mark what
 * only one of them supports.
 *
 * Turns. The library starts no thread. Messages and joins leave, messages arrive, and the host shows that it is present, only
 * while bundle_turn or bundle_receive runs. Call one of them at least every 250 ms, or let a thread wait in it. In format 2 the
 * central converter removes the interest of a host that is silent for 900 ms, until its next turn.
 *
 * Threads. All functions except bundle_close may be called from any thread at any time. bundle_close requires that no other
 * function of the host runs or is called later. A thread that waits in bundle_turn or bundle_receive does not block others, and
 * sends what they queue. A receiver function runs on the thread that called bundle_turn, and blocks other calls for the host. For
 * its own host it may only call bundle_wake; other functions return BUNDLE_EBUSY. For another host it may call any function, as a
 * gateway does; these return BUNDLE_EBUSY while that host's receiver function runs on another thread, so that the two never
 * deadlock. Send what was refused after the turn. A receiver function must not exit by longjmp or an exception.
 *
 * Errors are negative. bundle_error returns details of the last error of the calling thread.
 *
 * Build: cc program.c $(pkg-config --cflags --libs bundle)
 */
#ifndef BUNDLE_H
#define BUNDLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return codes. */
#define BUNDLE_OK          0
#define BUNDLE_EARG       -1  /* a null pointer or an invalid value */
#define BUNDLE_ESYSTEM    -2  /* error of the operating system, such as an address that is not local or in use */
#define BUNDLE_EBUSY     -3  /* called by a receiver function of this host, or of another host while one of this host runs */
#define BUNDLE_ETIME      -4  /* no message arrived in time */
#define BUNDLE_EWOKEN     -5  /* bundle_wake was called before a message arrived */
#define BUNDLE_ELARGE     -6  /* the message does not fit into a bundle (send) or into the buffer (receive) */
#define BUNDLE_ECONTROL   -7  /* format 1: a message of 20 or 22 octets would be taken for control */
#define BUNDLE_ECONGESTED -8  /* the network is congested: the ordinary message is dropped; send a newer one later */
#define BUNDLE_EFULL      -9  /* a queue is full: run a turn */
#define BUNDLE_EFORMAT    -10 /* the format, or the setting of pairs, does not support this */
#define BUNDLE_EREGION    -11 /* the region is unknown, invalid or not published, or has fewer addresses */
#define BUNDLE_EBUG       -12 /* a bug in this library: only bundle_close works for this host any more */

/* Returns a constant text for a code. */
const char *bundle_text(int code);

/* Returns the text of the last error of this thread, or "". It is valid until the thread's next error. */
const char *bundle_error(void);

/* Values of settings. All hosts and converters need the same, except for `timers`. */
#define BUNDLE_CLASSIC    0 /* format 1 (classic): 16 hosts, 16-bit addresses */
#define BUNDLE_WIDE       1 /* format 2: any number of hosts, 32-bit addresses, priority messages are acknowledged */
#define BUNDLE_TICK       0 /* timers: bundles leave on a tick of 5 ms */
#define BUNDLE_PROCESSOR  1 /* least processor time: 20 ms after the first message, at once with a priority message */
#define BUNDLE_DELAY      2 /* least delay: after 5 ms, or at once if the last bundle left at least 0.5 ms ago */
#define BUNDLE_RATES      0 /* congestion control of format 2: by rates */
#define BUNDLE_LEVELS     1 /* congestion control of format 2: by levels, as in 1997 */

/* The settings of a host. Fields that are 0 or null have the default value after the semicolon. Start with BUNDLE_SETTINGS. */
struct bundle_settings {
    size_t size;           /* sizeof(struct bundle_settings): later versions append fields */
    const char *central;   /* the central converter's address for hosts, "ADDRESS:PORT" or "ADDRESS"; 127.0.0.1:3458 */
    const char *listen;    /* the address for bundles, in the same form; format 1: 127.0.0.1:3459, format 2: a free port of
                              `interface`. A broadcast or multicast address if `--hosts` of the central converter is one */
    const char *interface; /* the address of the interface; 127.0.0.1 */
    uint32_t number;       /* the number of the host: format 1: 1 to 16, format 2: 1 to 65535; 1 */
    uint32_t format;       /* BUNDLE_CLASSIC or BUNDLE_WIDE */
    uint32_t timers;       /* BUNDLE_TICK, BUNDLE_PROCESSOR or BUNDLE_DELAY */
    uint32_t pairs;        /* 1: an odd address carries the priority messages of the even one before it; both are joined together */
    uint32_t site;         /* format 2: the site number of this central converter, 1 to 65535; 1 */
    uint32_t congestion;   /* format 2: BUNDLE_RATES or BUNDLE_LEVELS */
    uint32_t longest;      /* format 2: the largest datagram in octets, 512 to 65507; what the interface carries in one packet */
    uint32_t retell_ms;    /* format 1: the interval of join refreshes; 1000 */
    uint32_t interval_us;  /* the interval in which a congestion level admits its number of messages, `--interval` of the
                              converters: 100 to 3600000000; 5000 */
    uint32_t deadline_us;  /* the longest wait of an ordinary message of this host for its bundle, with BUNDLE_PROCESSOR and
                              BUNDLE_DELAY, up to 1000000; 20000 and 5000 */
    uint32_t priority_deadline_us; /* the same for a priority message; 0: its bundle leaves at once */
    uint32_t reserved;     /* must be 0 */
};

#define BUNDLE_SETTINGS { sizeof(struct bundle_settings), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct bundle_host bundle_host;

/*
 * Opens a host. The central converter may start later, and restart.
 * Errors: BUNDLE_EARG, also if a field is set that this version does not support. BUNDLE_ESYSTEM.
 */
int bundle_open(bundle_host **host, const struct bundle_settings *settings);

/*
 * Leaves all addresses and closes the host. This takes up to 0.7 s if the central converter does not answer. The host is closed
 * even after an error, except BUNDLE_EBUSY.
 * Errors: BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ESYSTEM.
 */
int bundle_close(bundle_host *host);

/*
 * Joins or leaves a range of addresses. Joining twice has no further effect.
 * Errors: BUNDLE_EARG: a null pointer, or a last address before the first. BUNDLE_EFORMAT: addresses above 65535 in format 1.
 * BUNDLE_EFULL: in format 1, part of the range was joined; in format 2, the host has 16384 ranges. BUNDLE_EBUSY.
 * Format 2: BUNDLE_OK does not mean that the central converter has room. The ranges of all hosts may divide the addresses into
 * 65536 segments, with 1048576 host entries. The central converter refuses joins beyond this and counts them
 * (trunkline_converter_changes_total, why="refused"), without notice to the host. The host joins again in a new session, and when
 * the program leaves the range and joins it again.
 */
int bundle_join(bundle_host *host, uint32_t first, uint32_t last);
int bundle_leave(bundle_host *host, uint32_t first, uint32_t last);

struct bundle_range {
    uint32_t first;
    uint32_t last;
};

/*
 * Regions, as in HLA. A region is a name (1 to 255 octets of UTF-8) for up to 1024 ranges of addresses that ascend and do not
 * overlap; with pairs they consist of whole pairs. All hosts should define regions alike; a host may have 4096. Subscribing joins
 * all addresses of a region. Unsubscribing leaves those that are in no other subscribed region. (Joins and leaves by address are
 * independent of regions: the last call for an address applies.) Publishing declares that this host sends to the region.
 * Errors: BUNDLE_EARG, BUNDLE_EREGION, BUNDLE_EFORMAT (bundle_define), BUNDLE_EFULL (as for bundle_join and bundle_leave),
 * BUNDLE_EBUSY.
 */
int bundle_define(bundle_host *host, const char *region, const struct bundle_range *ranges, size_t count);
int bundle_publish(bundle_host *host, const char *region);
int bundle_unpublish(bundle_host *host, const char *region);
int bundle_subscribe(bundle_host *host, const char *region);
int bundle_unsubscribe(bundle_host *host, const char *region);

#define BUNDLE_PRIORITY 1u      /* message flag; format 2: acknowledged, and never dropped for congestion */
#define BUNDLE_ANYTIME  (-1)    /* as a deadline: use the settings */

/*
 * Sends a message of up to 65500 octets (format 2: what fits into a datagram) to an address. The message is copied. Its bundle
 * leaves in the first turn after it is due, or in this call, if it is due and another thread waits in a turn.
 *     flags      BUNDLE_PRIORITY or 0. With pairs, messages to odd addresses always have priority; in format 1 no others can.
 *     within_us  the longest wait of a priority message in each converter, in microseconds; otherwise BUNDLE_ANYTIME.
 * Errors: BUNDLE_EARG: a null pointer, an unknown flag, or a deadline without priority. BUNDLE_ELARGE, BUNDLE_ECONTROL,
 * BUNDLE_ECONGESTED, BUNDLE_EFULL, BUNDLE_EFORMAT, BUNDLE_EBUSY.
 */
int bundle_send(bundle_host *host, uint32_t address, const void *body, size_t size, unsigned flags, long within_us);

/*
 * Sends a message to the nth address of a published region, from 0 on. Only the simulation knows which one applies, such as the
 * cell of an event; so no subscriber of the region receives a message twice.
 * Errors: as bundle_send; BUNDLE_EREGION.
 */
int bundle_send_in(bundle_host *host, const char *region, uint32_t nth, const void *body, size_t size, unsigned flags,
                   long within_us);

/* The metadata of a received message. Reserved fields are 0 in this version. */
struct bundle_from {
    uint32_t address;  /* the message address; format 1: the receiving hosts, one bit each */
    uint32_t source;   /* the sender: site in the upper half, number in the lower; format 1: 0 */
    uint32_t priority; /* 1 for a priority message; format 1: 0 */
    uint32_t reserved[5];
};

/* Receives a message. `body` and `from` are valid until the function returns. `body` is not null, even if `size` is 0. */
typedef void bundle_receiver(void *user, const struct bundle_from *from, const void *body, size_t size);

/*
 * Waits for messages for up to `timeout_ms` milliseconds (0: no wait; negative: forever), and calls `each` with `user` and each
 * message. If `each` is null, messages wait for bundle_receive, up to 4 MiB and 65,536 messages; more are dropped and counted.
 * A signal does not end the wait. Returns the number of calls; 0 also after bundle_wake.
 * Errors: BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ESYSTEM.
 */
int bundle_turn(bundle_host *host, int timeout_ms, bundle_receiver *each, void *user);

/*
 * Waits for a message like bundle_turn and copies it into `room`; `from` may be null. Returns the length of the message. If it
 * exceeds `size`, the beginning is copied, the rest is lost, and BUNDLE_ELARGE is returned. 65507 octets always suffice.
 * Errors: BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ETIME, BUNDLE_EWOKEN, BUNDLE_ELARGE, BUNDLE_ESYSTEM.
 */
int bundle_receive(bundle_host *host, struct bundle_from *from, void *room, size_t size, int timeout_ms);

/*
 * Ends the wait of another thread, or the next wait. Receiver functions and signal handlers may call it.
 * Errors: BUNDLE_EARG.
 */
int bundle_wake(bundle_host *host);

/*
 * Format 2: limits the ordinary messages that this host receives, per second; a negative value removes the limit. The central
 * converter drops the excess.
 * Errors: BUNDLE_EARG, BUNDLE_EFORMAT, BUNDLE_EBUSY.
 */
int bundle_saturate(bundle_host *host, long messages);

/* The counters of a host since it was opened. */
struct bundle_figures {
    size_t size;               /* sizeof(struct bundle_figures), set by the caller */
    uint64_t received;         /* messages received for this host */
    uint64_t others;           /* messages received for other hosts, and ignored */
    uint64_t sent;             /* messages sent */
    uint64_t bundles_received; /* bundles received from the central converter */
    uint64_t bundles_sent;
    uint64_t malformed;        /* malformed bundles */
    uint64_t dropped;          /* ordinary messages refused when sent, or without room when received */
    uint64_t dropped_priority; /* the same for priority messages */
    uint64_t lost;             /* format 2: messages in bundles that were lost or late */
    uint64_t resent;           /* format 2: retransmissions of priority messages */
    uint64_t sessions;         /* format 2: sessions with the central converter; 0: it has not answered yet */
    uint64_t silent;           /* format 2: timeouts of the central converter */
    uint64_t wanted;           /* current: joined addresses; with pairs in format 1, joined pairs */
    uint64_t level;            /* current: the congestion level, 3 (none) to 6 */
    uint64_t saying;           /* current: 1 if something waits to be sent or, in format 2, to be confirmed */
};

/*
 * Returns as many counters as fit into `size`.
 * Errors: BUNDLE_EARG: a null pointer, or a size without a counter. BUNDLE_EBUSY.
 */
int bundle_figures(bundle_host *host, struct bundle_figures *figures);

/*
 * Writes all metrics in the Prometheus text format, truncated to `size` with a terminating NUL; `room` may be null if `size` is 0.
 * Returns the length of the whole text without the NUL: less than `size` if all of it was written.
 * Errors: BUNDLE_EARG, BUNDLE_EBUSY.
 */
int bundle_page(bundle_host *host, char *room, size_t size);

#ifdef __cplusplus
}
#endif

#endif
