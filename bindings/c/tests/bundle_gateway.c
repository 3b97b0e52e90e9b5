/*
 * A gateway of two hosts. Each host has a thread that forwards messages to the other host within its receiver function. The two
 * must not deadlock. A third host sends the messages to forward.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "bundle_check.h"

enum { FORWARDED = 200 };

struct side {
    bundle_host *self, *other;
    unsigned received;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned nested, answered, ended;

/* Increments a counter and waits until both threads have. */
static void both(unsigned *count)
{
    pthread_mutex_lock(&lock);
    ++*count;
    pthread_cond_broadcast(&changed);
    while (*count < 2)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static int is_ended(void)
{
    int is;

    pthread_mutex_lock(&lock);
    is = ended == 2;
    pthread_mutex_unlock(&lock);
    return is;
}

static void forward(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    struct side *side = user;
    char buffer[64];
    int code;

    (void)from;
    if (side->received++ == 0) {
        /* Both receiver functions run: each host is busy. */
        both(&nested);
        CHECK(bundle_send(side->other, 9, body, size, 0, BUNDLE_ANYTIME) == BUNDLE_EBUSY);
        CHECK(strcmp(bundle_error(), bundle_text(BUNDLE_EBUSY)) == 0);
        CHECK(bundle_turn(side->other, -1, NULL, NULL) == BUNDLE_EBUSY);
        both(&answered);
        return;
    }
    /* From here on a host may be busy. */
    code = bundle_send(side->other, 9, body, size, 0, BUNDLE_ANYTIME);
    CHECK(code == BUNDLE_OK || code == BUNDLE_EBUSY || code == BUNDLE_EFULL || code == BUNDLE_ECONGESTED);
    code = bundle_receive(side->other, NULL, buffer, sizeof buffer, 1);
    CHECK(code >= 0 || code == BUNDLE_ETIME || code == BUNDLE_EBUSY);
}

static void *run_turns(void *user)
{
    struct side *side = user;
    int reported = 0;

    while (!is_ended()) {
        CHECK(bundle_turn(side->self, 5, forward, side) >= 0);
        if (!reported && side->received >= FORWARDED) {
            reported = 1;
            pthread_mutex_lock(&lock);
            ended++;
            pthread_mutex_unlock(&lock);
        }
    }
    /* Outside of a receiver function calls wait, and are never busy. */
    CHECK(bundle_send(side->other, 9, "after", 5, 0, BUNDLE_ANYTIME) != BUNDLE_EBUSY);
    return NULL;
}

int main(int argc, char **argv)
{
    struct side sides[2] = { { 0 } };
    pthread_t threads[2];
    bundle_host *sender;
    int n, code;

    CHECK(argc == 3 && is_format2(argv));
    sender = opened(argv, 3);
    for (n = 0; n < 2; n++)
        sides[n].self = sides[1 - n].other = opened(argv, n + 1);
    for (n = 0; n < 2; n++) {
        CHECK(bundle_join(sides[n].self, 7, 7) == BUNDLE_OK);
        drain(sides[n].self, 1);
    }
    for (n = 0; n < 2; n++)
        CHECK(pthread_create(&threads[n], NULL, run_turns, &sides[n]) == 0);
    while (!is_ended()) {
        code = bundle_send(sender, 7, "to be handed on", 15, 0, BUNDLE_ANYTIME);
        CHECK(code == BUNDLE_OK || code == BUNDLE_EFULL || code == BUNDLE_ECONGESTED);
        CHECK(bundle_turn(sender, 1, NULL, NULL) >= 0);
    }
    for (n = 0; n < 2; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    for (n = 0; n < 2; n++)
        CHECK(bundle_close(sides[n].self) == BUNDLE_OK);
    CHECK(bundle_close(sender) == BUNDLE_OK);
    return 0;
}
