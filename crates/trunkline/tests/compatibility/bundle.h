/*
 * bundle.h - the bundle converter from C: what a simulation wants of many small messages, in few packets.
 *
 * A host is one of those that a central converter (`trunkline converter central`) serves. It joins message addresses, by
 * number or by named region as in HLA, sends messages to them, and is given those of others: by a function that is called
 * with each message where it stands in the datagram, without a copy, or copied into a buffer.
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
 * Turns. The library has no thread of its own. What was sent and joined leaves, what comes is taken, and others know that the
 * host is there, while bundle_turn or bundle_receive runs. Call either often: at least every 250 ms, or let a thread wait in
 * it. In the wide format whoever is silent for 900 ms is taken out of the database until its next turn.
 *
 * Threads. Every function may be called from any thread, also at once, but bundle_close: when that is called no other function
 * of that host may run or be called any more. A thread that waits in bundle_turn or bundle_receive keeps nobody else waiting,
 * and lets leave what another thread sends. A receiver function runs on the thread that called bundle_turn, while other
 * threads' calls for the host wait; for its own host it may call none but bundle_wake (others answer BUNDLE_EBUSY). What it
 * wants to send is sent after the turn. For another host it may call all, as a gateway does; they answer BUNDLE_EBUSY while that
 * host's receiver function is called on another thread, so that neither waits for the other: that, too, is sent after the turn.
 * It must not leave by longjmp or an exception.
 *
 * Errors are less than 0. bundle_error says more of the last one of the calling thread.
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

/* What functions return. */
#define BUNDLE_OK          0
#define BUNDLE_EARG       -1  /* a null where something is needed, or a value that makes no sense */
#define BUNDLE_ESYSTEM    -2  /* the system refused: the address is not here or taken, or it no longer receives */
#define BUNDLE_EBUSY     -3  /* called by a receiver function: of this host, or of another while that of this host is called */
#define BUNDLE_ETIME      -4  /* no message came in time */
#define BUNDLE_EWOKEN     -5  /* no message came before bundle_wake */
#define BUNDLE_ELARGE     -6  /* the message does not fit: sent, into a bundle; received, into its room */
#define BUNDLE_ECONTROL   -7  /* classic: a message of 20 or 22 octets would be taken for control */
#define BUNDLE_ECONGESTED -8  /* the network is congested: no ordinary message now; nothing waits, send a newer one later */
#define BUNDLE_EFULL      -9  /* as much waits as may: have a turn */
#define BUNDLE_EFORMAT    -10 /* the format, or the setting of pairs, does not have that */
#define BUNDLE_EREGION    -11 /* no such region, not published, not that many addresses, or not to be defined so */
#define BUNDLE_EBUG       -12 /* a fault of this library: the host does nothing any more but bundle_close */

/* A constant text for a code. */
const char *bundle_text(int code);

/* What the last error of this thread was, in words; "" if there was none. It stands until the thread's next error. */
const char *bundle_error(void);

/* Formats, and what of them is set. The same at all hosts and converters, but `timers`. */
#define BUNDLE_CLASSIC    0 /* format: 16 hosts, 16-bit addresses */
#define BUNDLE_WIDE       1 /* any number of hosts, 32-bit addresses, priority messages acknowledged */
#define BUNDLE_TICK       0 /* timers: bundles leave with a tick of 5 ms */
#define BUNDLE_PROCESSOR  1 /* 20 ms after their first message, with a priority message at once: least processor */
#define BUNDLE_DELAY      2 /* 5 ms, and at once if the last left half a millisecond ago or more: least delay */
#define BUNDLE_RATES      0 /* congestion, of the wide format: by what is left of the medium */
#define BUNDLE_LEVELS     1 /* by the levels of 1997 */

/* How a host is opened. What is 0 or null is as said here: begin with BUNDLE_SETTINGS. */
struct bundle_settings {
    size_t size;           /* sizeof(struct bundle_settings): later versions of it have more behind */
    const char *central;   /* where the central converter hears hosts, "ADDRESS:PORT" or "ADDRESS"; 127.0.0.1:3458 */
    const char *listen;    /* where bundles come, the same way; classic 127.0.0.1:3459, wide a free port of `interface`. A
                              broadcast or multicast address if `--hosts` of the central converter is one */
    const char *interface; /* the address of the interface; 127.0.0.1 */
    uint32_t number;       /* of this host: classic 1 to 16, wide 1 to 65535; 1 */
    uint32_t format;       /* BUNDLE_CLASSIC or BUNDLE_WIDE */
    uint32_t timers;       /* BUNDLE_TICK, BUNDLE_PROCESSOR or BUNDLE_DELAY */
    uint32_t pairs;        /* 1: odd addresses are those of priority messages, joined with the even ones before them */
    uint32_t site;         /* wide: of this central converter's hosts, 1 to 65535; 1 */
    uint32_t congestion;   /* wide: BUNDLE_RATES or BUNDLE_LEVELS */
    uint32_t longest;      /* wide: octets of a datagram, 512 to 65507; what the interface carries */
    uint32_t retell_ms;    /* classic: how often what it wants is told again; 1000 */
    uint32_t interval_us;  /* in which so many messages go as the level of congestion lets go, `--interval` of the converters:
                              100 to 3600000000; 5000 */
    uint32_t deadline_us;  /* how long an ordinary message of this host may wait for others in its bundle, with BUNDLE_PROCESSOR
                              and BUNDLE_DELAY, up to 1000000; 20000 and 5000 */
    uint32_t priority_deadline_us; /* the same of a priority message; 0: its bundle leaves at once */
    uint32_t reserved;     /* 0 */
};

#define BUNDLE_SETTINGS { sizeof(struct bundle_settings), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct bundle_host bundle_host;

/*
 * Opens a host. It need not find a central converter: that may start later, and again.
 * BUNDLE_EARG: also if something is set behind the settings that this version knows. BUNDLE_ESYSTEM.
 */
int bundle_open(bundle_host **host, const struct bundle_settings *settings);

/*
 * Says that the host wants nothing any more, and closes it. That may take up to 0.7 s if nobody answers. The host is gone also
 * if this fails, but not with BUNDLE_EBUSY.
 * BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ESYSTEM.
 */
int bundle_close(bundle_host *host);

/*
 * Wants the messages with these addresses, or no longer. To join twice is to join once.
 * BUNDLE_EARG: null, or a last address before the first. BUNDLE_EFORMAT: classic, addresses above 65535. BUNDLE_EFULL: what
 * found room of a range in the classic format is wanted; wide: there are 16384 ranges. BUNDLE_EBUSY.
 * Wide: BUNDLE_OK does not say that the central converter has room. All hosts' ranges may cut the addresses into 65536 pieces,
 * and hosts may want 1048576 of them. A join of more is refused there and counted in its figures
 * (trunkline_converter_changes_total, why="refused"); this host is not told. It asks again in a new session, and when the
 * program leaves the range and joins it again.
 */
int bundle_join(bundle_host *host, uint32_t first, uint32_t last);
int bundle_leave(bundle_host *host, uint32_t first, uint32_t last);

struct bundle_range {
    uint32_t first;
    uint32_t last;
};

/*
 * Regions, as in HLA. A region is a name (1 to 255 octets of UTF-8) for up to 1024 ranges of addresses that rise and do not
 * overlap; with pairs they are of whole pairs. All hosts had better define them alike; each may have 4096. To subscribe is to
 * want all addresses of a region; to unsubscribe, to want those no longer that no other region has which is subscribed. (Joins
 * and leaves by address know nothing of regions: the last word counts.) To publish is to say that this host sends there.
 * BUNDLE_EARG, BUNDLE_EREGION, BUNDLE_EFORMAT (a definition), BUNDLE_EFULL (as for bundle_join and bundle_leave), BUNDLE_EBUSY.
 */
int bundle_define(bundle_host *host, const char *region, const struct bundle_range *ranges, size_t count);
int bundle_publish(bundle_host *host, const char *region);
int bundle_unpublish(bundle_host *host, const char *region);
int bundle_subscribe(bundle_host *host, const char *region);
int bundle_unsubscribe(bundle_host *host, const char *region);

#define BUNDLE_PRIORITY 1u      /* a flag of a message: wide, it is acknowledged and passes when the network is congested */
#define BUNDLE_ANYTIME  (-1)    /* as a deadline: as the timers say */

/*
 * Sends a message of up to 65500 octets (wide: what fits into a datagram) to an address. It is copied, gathers with others and
 * leaves in their bundle in the next turn after that is due, or from here, if it is and another thread waits in a turn.
 *     flags      BUNDLE_PRIORITY or 0. With pairs odd addresses are priority messages also without it; in the classic format
 *                no others may be.
 *     within_us  how long it may wait in each converter, microseconds: of a priority message. BUNDLE_ANYTIME otherwise.
 * BUNDLE_EARG: null or another flag, or a deadline without priority. BUNDLE_ELARGE, BUNDLE_ECONTROL, BUNDLE_ECONGESTED,
 * BUNDLE_EFULL, BUNDLE_EFORMAT, BUNDLE_EBUSY.
 */
int bundle_send(bundle_host *host, uint32_t address, const void *body, size_t size, unsigned flags, long within_us);

/*
 * The same to the nth address of a region, from 0 on, which is published. Which one that is, say in which cell something
 * happens, the simulation knows; so nobody who has subscribed to the region gets a message twice.
 * As bundle_send; BUNDLE_EREGION.
 */
int bundle_send_in(bundle_host *host, const char *region, uint32_t nth, const void *body, size_t size, unsigned flags,
                   long within_us);

/* What is known of a message that came. Later versions use what is reserved; now it is 0. */
struct bundle_from {
    uint32_t address;  /* where it was sent; classic: the hosts that get it, a bit each, which is all that is left of it */
    uint32_t source;   /* who sent it: site in the upper half, number in the lower; classic 0 */
    uint32_t priority; /* 1 if it had priority; classic 0 */
    uint32_t reserved[5];
};

/* Is given a message: `body` and `from` are there only until it returns. `body` is not null, also if `size` is 0. */
typedef void bundle_receiver(void *user, const struct bundle_from *from, const void *body, size_t size);

/*
 * A turn: waits until messages come, up to so many milliseconds (0: not at all; less: for ever), and calls `each` with `user`
 * and each of them. With null for `each` they wait to be received, 4 MiB and 65,536 of them at most; those that find no room
 * are dropped and counted. The number of calls; 0 also after bundle_wake. A signal does not end it.
 * BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ESYSTEM.
 */
int bundle_turn(bundle_host *host, int timeout_ms, bundle_receiver *each, void *user);

/*
 * Waits for a message as a turn does, and copies it into `room`; `from` may be null. The length of the message. If that is more
 * than `size`, the first of it are there, the rest is lost, and the answer is BUNDLE_ELARGE. 65507 octets are always enough.
 * BUNDLE_EARG, BUNDLE_EBUSY, BUNDLE_ETIME, BUNDLE_EWOKEN, BUNDLE_ELARGE, BUNDLE_ESYSTEM.
 */
int bundle_receive(bundle_host *host, struct bundle_from *from, void *room, size_t size, int timeout_ms);

/*
 * Ends a wait of another thread, or the next one. It may be called by a receiver function and by a signal's handler.
 * BUNDLE_EARG.
 */
int bundle_wake(bundle_host *host);

/*
 * Wide: takes no more than so many ordinary messages a second from now on, less than 0: any. The others are dropped in the
 * central converter.
 * BUNDLE_EARG, BUNDLE_EFORMAT, BUNDLE_EBUSY.
 */
int bundle_saturate(bundle_host *host, long messages);

/* What a host counted since it was opened. */
struct bundle_figures {
    size_t size;               /* sizeof(struct bundle_figures), set before the call */
    uint64_t received;         /* messages for this host */
    uint64_t others;           /* messages for others, passed over */
    uint64_t sent;             /* messages sent */
    uint64_t bundles_received; /* bundles of the central converter */
    uint64_t bundles_sent;
    uint64_t malformed;        /* bundles that are none */
    uint64_t dropped;          /* ordinary messages refused when they were sent, or without room when they came */
    uint64_t dropped_priority; /* priority messages, the same */
    uint64_t lost;             /* wide: messages of bundles that did not come, or came late */
    uint64_t resent;           /* wide: priority messages sent again until they were acknowledged */
    uint64_t sessions;         /* wide: sessions with the central converter; 0: it has not been heard of */
    uint64_t silent;           /* wide: times that it was silent for too long */
    uint64_t wanted;           /* now: addresses joined; with pairs, classic, pairs */
    uint64_t level;            /* now: the level of congestion, 3 (none) to 6 */
    uint64_t saying;           /* now: 1 if something has not left; wide, was not heard of */
};

/*
 * Sets as many of them as `size` says.
 * BUNDLE_EARG: null, or a size of no figure. BUNDLE_EBUSY.
 */
int bundle_figures(bundle_host *host, struct bundle_figures *figures);

/*
 * All of them and more as a page for Prometheus, as much as fits with a 0 behind it; `room` may be null if `size` is 0. The
 * length of the page without the 0: less than `size` if all of it is there.
 * BUNDLE_EARG, BUNDLE_EBUSY.
 */
int bundle_page(bundle_host *host, char *room, size_t size);

#ifdef __cplusplus
}
#endif

#endif
