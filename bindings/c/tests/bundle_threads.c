/*
 * A thread waits in each of two hosts forever, while others send and wake them. In format 1 nothing else would end the waits: a
 * sent message is due before a waiting host would look again.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "bundle_check.h"

enum { SENDERS = 3, MESSAGES = 100 };

static bundle_host *hosts[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned received_count, ended, gone;

static void wait_us(long us)
{
    const struct timespec time = { 0, us * 1000 };

    nanosleep(&time, NULL);
}

static void count(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    (void)user, (void)from;
    CHECK(size == 6 && memcmp(body, "thread", 6) == 0);
    pthread_mutex_lock(&lock);
    received_count++;
    pthread_mutex_unlock(&lock);
}

static unsigned now(const unsigned *what)
{
    unsigned value;

    pthread_mutex_lock(&lock);
    value = *what;
    pthread_mutex_unlock(&lock);
    return value;
}

static void *wait_loop(void *host)
{
    while (!now(&ended))
        CHECK(bundle_turn(host, -1, count, NULL) >= 0);
    pthread_mutex_lock(&lock);
    gone++;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Waits for each message, so that each one must leave without help of a later one. */
static void *send_loop(void *host)
{
    unsigned before;
    int n;

    for (n = 0; n < MESSAGES; n++) {
        before = now(&received_count);
        CHECK(bundle_send(host, 7, "thread", 6, 0, BUNDLE_ANYTIME) == BUNDLE_OK);
        while (now(&received_count) == before)
            wait_us(200);
    }
    /* Errors are per thread. */
    CHECK(*bundle_error() == 0);
    return NULL;
}

static void on_alarm(int number)
{
    (void)number;
    bundle_wake(hosts[0]);
}

int main(int argc, char **argv)
{
    pthread_t waiting[3], sending[SENDERS];
    struct at at;
    int n;

    CHECK(argc == 3 && !is_format2(argv));
    for (n = 0; n < 2; n++) {
        host_at(&at, argv, n + 1);
        at.settings.retell_ms = UINT32_MAX;
        CHECK(bundle_open(&hosts[n], &at.settings) == BUNDLE_OK);
    }
    CHECK(bundle_join(hosts[1], 7, 7) == BUNDLE_OK);
    drain(hosts[1], 0);

    /* A signal handler ends a wait with bundle_wake; the signal itself does not. */
    CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
    alarm(1);
    CHECK(bundle_turn(hosts[0], -1, count, NULL) == 0);

    CHECK(bundle_receive(hosts[0], NULL, NULL, 0, 0) == BUNDLE_ETIME && *bundle_error());
    for (n = 0; n < 2; n++)
        CHECK(pthread_create(&waiting[n], NULL, wait_loop, hosts[n]) == 0);
    /* Two threads wait in the same host. */
    CHECK(pthread_create(&waiting[2], NULL, wait_loop, hosts[0]) == 0);
    for (n = 0; n < SENDERS; n++)
        CHECK(pthread_create(&sending[n], NULL, send_loop, hosts[0]) == 0);
    for (n = 0; n < SENDERS; n++)
        CHECK(pthread_join(sending[n], NULL) == 0);
    CHECK(now(&received_count) >= MESSAGES && figures_of(hosts[0]).sent == SENDERS * MESSAGES);
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_mutex_unlock(&lock);
    /* Each wake-up ends one wait; two before a wait count as one. */
    CHECK(bundle_wake(hosts[1]) == BUNDLE_OK && pthread_join(waiting[1], NULL) == 0);
    while (now(&gone) < 3) {
        CHECK(bundle_wake(hosts[0]) == BUNDLE_OK);
        wait_us(20000);
    }
    CHECK(pthread_join(waiting[0], NULL) == 0 && pthread_join(waiting[2], NULL) == 0);
    for (n = 0; n < 2; n++)
        CHECK(bundle_close(hosts[n]) == BUNDLE_OK);
    return 0;
}
