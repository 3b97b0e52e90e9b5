/*
 * Takes messages of reliable_send, from any one station, and prints their texts.
 *
 *     reliable_receive [COUNT]        99 messages
 *
 * After the last one it keeps answering until no request has arrived for two seconds: the last answer may be lost too.
 */
#include <string.h>

#include "alternating.h"

/* So long nothing comes, in units of 10 ms, until it looks whether it is done. */
enum { SILENCE = 200, SILENCES = 15 };

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 99;
    struct message message;
    unsigned char from[2], number = 0;
    unsigned status;
    int taken = 0, silences = 0;

    begin(SILENCE);
    printf("ready\n");
    fflush(stdout);
    while (silences < (taken < count ? SILENCES : 1)) {
        memset(&message, 0, sizeof message);
        need(LLCrecv(SOCKET, from, &message, sizeof message), "LLCrecv");
        status = ended(&received, 'r');
        if (status & STLATE)
            silences++;
        if (status & STFAIL)
            continue;
        silences = 0;
        if (message.number != number && taken < count) {
            number = message.number;
            taken++;
            printf("%.*s\n", TEXT, message.text);
        }
        /* A copy too: its answer was lost. */
        need(LLCxmit(SOCKET, from, &message.number, sizeof message.number), "LLCxmit");
        if (ended(&sent, 'x') & STFAIL)
            fprintf(stderr, "reliable_receive: an answer did not leave\n");
    }
    finish();
    if (taken < count)
        fprintf(stderr, "reliable_receive: only %d of %d messages\n", taken, count);
    return taken < count;
}
