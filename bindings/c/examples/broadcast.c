/*
 * Sends datagrams to every station on the network, socket 2 to socket 2, and does not ask who gets them.
 *
 *     broadcast [COUNT [OCTETS]]        100 of 1000 octets
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llcio.h>

enum { SOCKET = 2 };

/* Says what was refused, and ends: LLCoff closes what is open. */
static void need(unsigned answer, const char *what)
{
    if (answer == OPOK)
        return;
    fprintf(stderr, "broadcast: %s: %s\n", what, LLCopbits(answer));
    if (answer == OPNONET)
        perror("broadcast");
    LLCoff();
    exit(1);
}

int main(int argc, char **argv)
{
    const unsigned char everybody[2] = { SOCKET, LLCALL };
    const long count = argc > 1 ? atol(argv[1]) : 100;
    const long octets = argc > 2 ? atol(argv[2]) : 1000;
    static unsigned char packet[LLCMAX];
    unsigned status;
    long n;

    if (octets < 0 || octets > LLCMAX) {
        fprintf(stderr, "broadcast: a packet has 0 to %d octets\n", LLCMAX);
        return 2;
    }
    memset(packet, '.', sizeof packet);
    need(LLCon(1), "LLCon");
    need(LLCopen(SOCKET), "LLCopen");
    /* No signal functions, no time limits, class 0: unacknowledged, lowest priority. */
    need(LLCoption(SOCKET, NULL, NULL, 0, 0, 0, 1), "LLCoption");

    for (n = 0; n < count; n++) {
        need(LLCxmit(SOCKET, everybody, packet, (unsigned)octets), "LLCxmit");
        /* Only one at a time: wait until it has left. */
        do
            need(LLCstatus(SOCKET, 'x', &status), "LLCstatus");
        while (status & STBUSY);
        if (status & STFAIL)
            fprintf(stderr, "broadcast: packet %ld: %s\n", n, LLCstbits(status, 'x'));
    }

    need(LLCreset(SOCKET, 'x'), "LLCreset");
    need(LLCclose(SOCKET), "LLCclose");
    need(LLCoff(), "LLCoff");
    printf("%ld packets of %ld octets\n", n, octets);
    return 0;
}
