/* What the tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llcio.h>

/* Ends the program with 1 if it does not hold. */
#define CHECK(holds) check((holds) != 0, #holds, __FILE__, __LINE__)

static void check(int holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    exit(1);
}

/* The status of a direction. */
static unsigned status_of(int sock, char direction)
{
    unsigned status = ~0u;

    CHECK(LLCstatus(sock, direction, &status) == OPOK);
    return status;
}

/* Waits until nothing is pending; how it ended. */
static unsigned ended(int sock, char direction)
{
    unsigned status;

    do
        status = status_of(sock, direction);
    while (status & STBUSY);
    return status;
}

#endif
