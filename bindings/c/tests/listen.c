/*
 * Receives COUNT packets at socket 2, and prints the sender and the reported size of each.
 *
 *     listen COUNT
 */
#include "check.h"

int main(int argc, char **argv)
{
    static unsigned char from[2], room[LLCMAX];
    int count = argc > 1 ? atoi(argv[1]) : 1, n;
    unsigned size;

    CHECK(LLCon(1) == OPOK && LLCopen(2) == OPOK);
    CHECK(LLCoption(2, NULL, NULL, 0, 3000, 0, 1) == OPOK);
    printf("ready\n");
    fflush(stdout);
    for (n = 0; n < count; n++) {
        memset(room, 0, sizeof room);
        CHECK(LLCrecv(2, from, room, sizeof room) == OPOK && ended(2, 'r') == 0);
        for (size = 0; size < sizeof room && room[size] == '.'; size++)
            ;
        printf("%u octets from socket %u of station %u\n", size, from[0], from[1]);
    }
    CHECK(LLCoff() == OPOK);
    return 0;
}
