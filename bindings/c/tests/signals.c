/*
 * Signal functions: on one thread, one call for each operation, with every function at their disposal; and threads of the
 * program's that call at once. The environment names a network of this program's own.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <semaphore.h>

#include "check.h"

enum { ROUNDS = 200, THREADS = 4 };

static unsigned char self[2] = { 4, 0 };
static sem_t done;
static pthread_t library;
static int calls_x, calls_r, left;
static unsigned char from[2], room[1], packet[1];

/* The program's thread looks at these only after it waited for `done`. */
static void on_the_librarys_thread(void)
{
    if (calls_x + calls_r == 0)
        library = pthread_self();
    CHECK(pthread_equal(library, pthread_self()));
}

/* Sends the next from here. */
static void on_sent(void)
{
    on_the_librarys_thread();
    CHECK(status_of(2, 'x') == 0);
    calls_x++;
    if (--left > 0) {
        packet[0]++;
        CHECK(LLCxmit(2, self, packet, 1) == OPOK && LLCxmit(2, self, packet, 1) == OPBUSY);
    } else {
        sem_post(&done);
    }
}

static void on_received(void)
{
    on_the_librarys_thread();
    CHECK(status_of(4, 'r') == 0 && room[0] == (unsigned char)calls_r && from[1] == self[1]);
    calls_r++;
    if (calls_r == ROUNDS)
        sem_post(&done);
    else
        CHECK(LLCrecv(4, from, room, 1) == OPOK);
}

static void on_late(void)
{
    CHECK(status_of(6, 'r') == (STFAIL | STLATE));
    CHECK(LLCclose(6) == OPOK && LLCopen(6) == OPOK && LLCoption(6, NULL, NULL, 0, 0, 0, 1) == OPOK);
    sem_post(&done);
}

static void never(void)
{
    CHECK(!"a reset operation is signalled");
}

static void turn_off(void)
{
    CHECK(LLCoff() == OPOK && LLCoff() == OPNONET && LLCopen(2) == OPNONET);
    sem_post(&done);
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        ;
}

/* Each has a socket, and sends to itself. */
static void *exchanges(void *number)
{
    int sock = *(int *)number, n;
    unsigned char to[2], source[2], sent[100], came[100];

    to[0] = (unsigned char)sock;
    to[1] = self[1];
    CHECK(LLCopen(sock) == OPOK);
    CHECK(LLCoption(sock, NULL, NULL, 0, 0, LLCPRI(sock) | LLCACK, 65535) == OPOK);
    for (n = 0; n < ROUNDS; n++) {
        memset(sent, n + sock, sizeof sent);
        CHECK(LLCrecv(sock, source, came, sizeof came) == OPOK);
        CHECK(LLCxmit(sock, to, sent, sizeof sent) == OPOK);
        CHECK(ended(sock, 'x') == 0 && ended(sock, 'r') == 0 && memcmp(sent, came, sizeof sent) == 0);
    }
    CHECK(LLCclose(sock) == OPOK);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], n;

    self[1] = (unsigned char)atoi(getenv("LLC_STATION"));
    sem_init(&done, 0, 0);
    CHECK(LLCon(20) == OPOK && LLCopen(2) == OPOK && LLCopen(4) == OPOK && LLCopen(6) == OPOK);

    /* A chain of operations, each begun by the signal of the one before. */
    CHECK(LLCoption(2, on_sent, NULL, 0, 0, LLCACK, 65535) == OPOK);
    CHECK(LLCoption(4, NULL, on_received, 0, 0, 0, 1) == OPOK);
    left = ROUNDS;
    CHECK(LLCrecv(4, from, room, 1) == OPOK && LLCxmit(2, self, packet, 1) == OPOK);
    wait_for(&done);
    wait_for(&done);
    CHECK(calls_x == ROUNDS && calls_r == ROUNDS && !pthread_equal(library, pthread_self()));

    /* The end of an operation that timed out is signalled, that of a cancelled one is not. */
    CHECK(LLCoption(6, NULL, on_late, 0, 1, 0, 1) == OPOK);
    CHECK(LLCrecv(6, from, room, 1) == OPOK);
    wait_for(&done);
    CHECK(LLCoption(6, NULL, never, 0, 0, 0, 1) == OPOK);
    CHECK(LLCrecv(6, from, room, 1) == OPOK && LLCreset(6, 'r') == OPOK && LLCclose(6) == OPOK);

    for (n = 0; n < THREADS; n++) {
        numbers[n] = 100 + 2 * n;
        CHECK(pthread_create(&threads[n], NULL, exchanges, &numbers[n]) == 0);
    }
    for (n = 0; n < THREADS; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);

    /* Off while operations are pending; and on again at once, and off from a signal function. */
    CHECK(LLCrecv(2, from, room, 1) == OPOK && LLCoff() == OPOK);
    for (n = 0; n < 10; n++)
        CHECK(LLCon(1) == OPOK && LLCopen(2) == OPOK && LLCoff() == OPOK);
    CHECK(LLCon(1) == OPOK && LLCopen(2) == OPOK);
    CHECK(LLCoption(2, turn_off, NULL, 0, 0, 0, 1) == OPOK);
    CHECK(LLCxmit(2, self, packet, 1) == OPOK);
    wait_for(&done);
    CHECK(LLCoff() == OPNONET);
    CHECK(LLCon(1) == OPOK && LLCoff() == OPOK);
    sem_destroy(&done);
    return 0;
}
