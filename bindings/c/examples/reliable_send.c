/*
 * Sends messages to a station's reliable_receive: each arrives once and in order, or it says so and ends with 1.
 *
 *     reliable_send STATION [COUNT]        99 messages
 */
#include "alternating.h"

/* An answer is waited for so long, in units of 10 ms, and a message sent so often. */
enum { PATIENCE = 5, TRIES = 100 };

/* Sends a message until it is answered; whether it was. */
static int deliver(unsigned char station, const struct message *message)
{
    const unsigned char to[2] = { SOCKET, station };
    unsigned char from[2], number;
    unsigned status;
    int tries;

    for (tries = 0; tries < TRIES; tries++) {
        /* Room for the answer first: it may be quick. */
        need(LLCrecv(SOCKET, from, &number, sizeof number), "LLCrecv");
        need(LLCxmit(SOCKET, to, message, sizeof *message), "LLCxmit");
        ended(&sent, 'x');
        for (;;) {
            status = ended(&received, 'r');
            if (status & STLATE)
                break;
            if (!(status & STFAIL) && from[1] == station && number == message->number)
                return 1;
            /* The answer to a copy of the message before: the right one is still to come. */
            need(LLCrecv(SOCKET, from, &number, sizeof number), "LLCrecv");
        }
    }
    fprintf(stderr, "reliable_send: no answer: %s\n", LLCstbits(status, 'r'));
    return 0;
}

int main(int argc, char **argv)
{
    struct message message = { 0, "" };
    const int station = argc > 1 ? atoi(argv[1]) : 0;
    const int count = argc > 2 ? atoi(argv[2]) : 99;
    int n, all = 1;

    if (station < 1 || station > 254) {
        fprintf(stderr, "usage: reliable_send STATION [COUNT], STATION 1 to 254\n");
        return 2;
    }
    begin(PATIENCE);
    for (n = 1; all && n <= count; n++) {
        message.number = !message.number;
        snprintf(message.text, sizeof message.text, "message %d", n);
        all = deliver((unsigned char)station, &message);
    }
    finish();
    printf("%d messages delivered\n", all ? count : n - 2);
    return all ? 0 : 1;
}
