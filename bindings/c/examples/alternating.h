/*
 * What the reliable sender and receiver share: an alternating bit over unacknowledged datagrams, which may be lost or doubled.
 *
 * A message is one octet, its number 0 or 1, and a text; the answer is that octet. A message is sent until its number comes
 * back; the next has the other number. The receiver answers all, and takes those whose number is not that of the last.
 */
#ifndef ALTERNATING_H
#define ALTERNATING_H

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include <llcio.h>

enum { SOCKET = 2, TEXT = 100 };

struct message {
    unsigned char number;
    char text[TEXT];
};

/* Operations that have ended and were not waited for. */
static sem_t sent, received;

/* Called on the library's thread. */
static void on_sent(void)
{
    sem_post(&sent);
}

static void on_received(void)
{
    sem_post(&received);
}

/* Says what was refused, and ends: LLCoff closes what is open. */
static void need(unsigned answer, const char *what)
{
    if (answer == OPOK)
        return;
    fprintf(stderr, "%s: %s\n", what, LLCopbits(answer));
    if (answer == OPNONET)
        perror("LLC");
    LLCoff();
    exit(1);
}

/* Waits for an operation to end; how it did. */
static unsigned ended(sem_t *operation, char direction)
{
    unsigned status;

    while (sem_wait(operation) != 0)
        ;
    need(LLCstatus(SOCKET, direction, &status), "LLCstatus");
    return status;
}

static void begin(int patience)
{
    sem_init(&sent, 0, 0);
    sem_init(&received, 0, 0);
    need(LLCon(1), "LLCon");
    need(LLCopen(SOCKET), "LLCopen");
    need(LLCoption(SOCKET, on_sent, on_received, 0, patience, 0, 1), "LLCoption");
}

static void finish(void)
{
    need(LLCreset(SOCKET, 'r'), "LLCreset");
    need(LLCreset(SOCKET, 'x'), "LLCreset");
    need(LLCclose(SOCKET), "LLCclose");
    need(LLCoff(), "LLCoff");
    sem_destroy(&sent);
    sem_destroy(&received);
}

#endif
