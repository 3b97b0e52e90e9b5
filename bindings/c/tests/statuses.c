/* Every status, in both directions. The environment names a network of this program's own. */
#include "check.h"

int main(void)
{
    const unsigned char station = (unsigned char)atoi(getenv("LLC_STATION"));
    const unsigned char self[2] = { 4, station }, closed[2] = { 6, station }, absent[2] = { 2, 200 };
    unsigned char from[2], room[2] = { 0, 9 }, packet[2] = { 1, 2 };
    int n;

    CHECK(LLCon(2) == OPOK && LLCopen(2) == OPOK && LLCopen(4) == OPOK);
    CHECK(status_of(2, 'x') == 0 && status_of(2, 'r') == 0);

    /* Pending; and with its packet on the way. */
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 65535) == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK);
    CHECK(status_of(2, 'x') == (STBUSY | STIO) && status_of(2, 'r') == 0);
    CHECK(LLCrecv(2, from, room, 1) == OPOK);
    CHECK(status_of(2, 'r') == STBUSY);
    CHECK(LLCreset(2, 'x') == OPOK && status_of(2, 'x') == 0 && status_of(2, 'r') == STBUSY);
    CHECK(LLCreset(2, 'r') == OPOK && status_of(2, 'r') == 0);

    /* That one was given up does not end the next: as is known when something else has ended since. */
    CHECK(LLCoption(4, NULL, NULL, 0, 1, 0, 1) == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK && LLCreset(2, 'x') == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == (STFAIL | STLATE));
    CHECK(status_of(2, 'x') == (STBUSY | STIO) && LLCreset(2, 'x') == OPOK);

    /* No station answers; and a socket that is not open. */
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 2) == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK && ended(2, 'x') == STFAIL && status_of(2, 'x') == STFAIL);
    CHECK(LLCxmit(2, closed, packet, 2) == OPOK && ended(2, 'x') == STFAIL);
    /* What failed is forgotten with the next. */
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 0, 1) == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK && ended(2, 'x') == 0);

    /* Not answered in time, with tries left. */
    CHECK(LLCoption(2, NULL, NULL, 3, 0, LLCACK, 65535) == OPOK);
    CHECK(LLCxmit(2, absent, packet, 2) == OPOK && ended(2, 'x') == (STFAIL | STLATE));
    CHECK(LLCreset(2, 'x') == OPOK && status_of(2, 'x') == 0);

    /* Nothing came in time: and not what comes then. */
    CHECK(LLCoption(4, NULL, NULL, 0, 2, 0, 1) == OPOK);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == (STFAIL | STLATE));
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 65535) == OPOK);
    CHECK(LLCxmit(2, self, packet, 1) == OPOK && ended(2, 'x') == 0);
    CHECK(status_of(4, 'r') == (STFAIL | STLATE) && room[0] == 0);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == 0 && room[0] == 1 && from[0] == 2);

    /* Larger than its room: the rest is lost, and nothing behind is written. */
    room[0] = 0;
    CHECK(LLCxmit(2, self, packet, 2) == OPOK && ended(2, 'x') == 0);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == STFAIL && room[0] == 1 && room[1] == 9);

    /* Packets wait, 64 of them; then an acknowledged one is refused, and an unacknowledged one lost. */
    for (n = 0; n < 64; n++)
        CHECK(LLCxmit(2, self, packet, 1) == OPOK && ended(2, 'x') == 0);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 2) == OPOK);
    CHECK(LLCxmit(2, self, packet, 1) == OPOK && ended(2, 'x') == STFAIL);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 0, 1) == OPOK);
    CHECK(LLCxmit(2, self, packet, 1) == OPOK && ended(2, 'x') == 0);
    for (n = 0; n < 63; n++)
        CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == 0);
    /* A reset loses what waits. */
    CHECK(LLCreset(4, 'r') == OPOK);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == (STFAIL | STLATE));

    /* Who has another opinion of the CRC is not heard. */
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 2) == OPOK);
    CHECK(LLCoption(4, NULL, NULL, 0, 2, LLCCRC, 1) == OPOK);
    CHECK(LLCxmit(2, self, packet, 2) == OPOK && ended(2, 'x') == STFAIL);
    CHECK(LLCrecv(4, from, room, 1) == OPOK && ended(4, 'r') == (STFAIL | STLATE));

    CHECK(LLCoff() == OPOK);
    return 0;
}
