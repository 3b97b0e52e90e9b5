/* Every function, and everything that operations answer. The environment names a network of this program's own. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "check.h"

static void signal_function(void)
{
}

/* What cannot be turned on says why. */
static void what_the_environment_must_say(void)
{
    static const char *const wrong[][2] = {
        { "nowhere", "1" }, { "udp:10.0.0.1:5000", "1" }, { "eth:", "1" }, { "", "1" },
        { NULL, "0" }, { NULL, "255" }, { NULL, "one" }, { NULL, "" }, { NULL, "-1" },
    };
    char network[100], station[10];
    size_t n;

    CHECK(getenv("LLC_NETWORK") && getenv("LLC_STATION"));
    snprintf(network, sizeof network, "%s", getenv("LLC_NETWORK"));
    snprintf(station, sizeof station, "%s", getenv("LLC_STATION"));
    for (n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        setenv("LLC_NETWORK", wrong[n][0] ? wrong[n][0] : network, 1);
        setenv("LLC_STATION", wrong[n][1], 1);
        errno = 0;
        CHECK(LLCon(1) == OPNONET && errno == EINVAL);
    }
    unsetenv("LLC_STATION");
    CHECK(LLCon(1) == OPNONET && errno == EINVAL);
    setenv("LLC_STATION", station, 1);
    unsetenv("LLC_NETWORK");
    CHECK(LLCon(1) == OPNONET && errno == EINVAL);
    setenv("LLC_NETWORK", "eth:nosuch0", 1);
    errno = 0;
    CHECK(LLCon(1) == OPNONET && errno == ENODEV);
    setenv("LLC_NETWORK", network, 1);
}

static void sockets_are_counted(void)
{
    int sock;

    CHECK(LLCon(-1) == OPARG && LLCon(0) == OPARG && LLCon(128) == OPMANY);
    CHECK(LLCon(2) == OPOK && LLCon(2) == OPDUP);
    for (sock = -3; sock < 300; sock++) {
        if (sock % 2 != 0 || sock < 2 || sock > 254) {
            CHECK(LLCopen(sock) == OPINVAL && LLCclose(sock) == OPINVAL);
            CHECK(LLCstatus(sock, 'x', (unsigned[1]){ 0 }) == OPINVAL);
        }
    }
    CHECK(LLCopen(2) == OPOK && LLCopen(2) == OPDUP);
    CHECK(LLCopen(254) == OPOK && LLCopen(4) == OPMANY);
    CHECK(LLCclose(2) == OPOK && LLCclose(2) == OPINVAL);
    CHECK(LLCopen(4) == OPOK);
    CHECK(LLCoff() == OPOK && LLCoff() == OPNONET);

    CHECK(LLCon(127) == OPOK);
    for (sock = 2; sock <= 254; sock += 2)
        CHECK(LLCopen(sock) == OPOK);
    CHECK(LLCopen(2) == OPDUP);
    CHECK(LLCoff() == OPOK);
}

static void options_are_looked_at(void)
{
    CHECK(LLCopen(2) == OPOK);
    CHECK(LLCoption(2, signal_function, signal_function, 0, 0, LLCPRI(7) | LLCACK | LLCCRC, 65535) == OPOK);
    CHECK(LLCoption(2, NULL, NULL, 2147483647, 2147483647, 0, 0) == OPOK);
    CHECK(LLCoption(4, NULL, NULL, 0, 0, 0, 1) == OPINVAL);
    CHECK(LLCoption(3, NULL, NULL, 0, 0, 0, 1) == OPINVAL);
    CHECK(LLCoption(2, NULL, NULL, -1, 0, 0, 1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, -1, 0, 1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 32, 1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, -1, 1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 0, -1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 0, 65536) == OPARG);
    CHECK(LLCclose(2) == OPOK);
}

/* A station hears itself. */
static void packets_go_and_come(unsigned char station)
{
    const unsigned char to[2] = { 4, station }, everybody[2] = { 4, LLCALL }, nobody[2] = { 4, 0 }, none[2] = { 0, 9 };
    unsigned char from[2] = { 0, 0 }, sent[LLCMAX + 1], came[LLCMAX + 1];
    unsigned size;
    int n;

    for (n = 0; n <= LLCMAX; n++)
        sent[n] = (unsigned char)(n * 7);
    CHECK(LLCopen(2) == OPOK && LLCopen(4) == OPOK);
    for (n = 0; n < 4; n++) {
        int cls = LLCPRI(n * 2) | (n & 1 ? LLCACK : 0) | (n & 2 ? LLCCRC : 0);

        CHECK(LLCoption(2, NULL, NULL, 0, 0, cls, 100) == OPOK);
        CHECK(LLCoption(4, NULL, NULL, 0, 0, cls, 100) == OPOK);
        for (size = 0; size <= LLCMAX; size += size < 4 ? 1 : 311) {
            unsigned most = n & 2 ? LLCMAX - 4 : LLCMAX;

            if (size > most)
                break;
            memset(came, 0xee, sizeof came);
            CHECK(LLCrecv(4, from, came, sizeof came) == OPOK);
            CHECK(LLCxmit(2, to, size ? sent : NULL, size) == OPOK);
            CHECK(ended(2, 'x') == 0 && ended(4, 'r') == 0);
            CHECK(from[0] == 2 && from[1] == station && memcmp(sent, came, size) == 0 && came[size] == 0xee);
        }
        size = n & 2 ? LLCMAX - 4 : LLCMAX;
        CHECK(LLCxmit(2, to, sent, size + 1) == OPLARGE && LLCxmit(2, to, sent, 0xffffffffu) == OPLARGE);
        CHECK(LLCxmit(2, to, sent, size) == OPOK && ended(2, 'x') == 0);
        /* It waits for its reader. */
        CHECK(LLCrecv(4, from, came, size) == OPOK && ended(4, 'r') == 0 && memcmp(sent, came, size) == 0);
    }
    CHECK(LLCxmit(2, everybody, sent, 1) == OPARG);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, 0, 1) == OPOK);
    CHECK(LLCxmit(2, everybody, sent, 1) == OPOK && ended(2, 'x') == 0);
    CHECK(LLCxmit(2, nobody, sent, 1) == OPARG && LLCxmit(2, none, sent, 1) == OPARG);
    CHECK(LLCxmit(2, NULL, sent, 1) == OPARG && LLCxmit(2, to, NULL, 1) == OPARG);
    CHECK(LLCrecv(4, NULL, came, 1) == OPARG && LLCrecv(4, from, NULL, 1) == OPARG);
    CHECK(LLCxmit(6, to, sent, 1) == OPINVAL && LLCrecv(6, from, came, 1) == OPINVAL && LLCreset(6, 'x') == OPINVAL);
    CHECK(status_of(2, 'x') == 0 && status_of(4, 'r') == 0);
    CHECK(LLCclose(2) == OPOK && LLCclose(4) == OPOK);
}

/* One operation is pending in each direction, and until it has ended or is reset the socket is not closed. */
static void a_socket_is_busy(void)
{
    const unsigned char absent[2] = { 2, 200 };
    unsigned char from[2], octet = 1;

    CHECK(LLCopen(2) == OPOK);
    CHECK(LLCoption(2, NULL, NULL, 0, 0, LLCACK, 65535) == OPOK);
    CHECK(LLCrecv(2, from, &octet, 1) == OPOK && LLCrecv(2, from, &octet, 1) == OPBUSY);
    CHECK(LLCclose(2) == OPBUSY);
    CHECK(LLCxmit(2, absent, &octet, 1) == OPOK && LLCxmit(2, absent, &octet, 1) == OPBUSY);
    CHECK(LLCreset(2, 'r') == OPOK && LLCclose(2) == OPBUSY);
    CHECK(LLCreset(2, 'x') == OPOK && LLCreset(2, 'x') == OPOK && status_of(2, 'x') == 0);
    CHECK(LLCreset(2, 'y') == OPARG && LLCstatus(2, 'X', (unsigned[1]){ 0 }) == OPARG);
    CHECK(LLCstatus(2, 'x', NULL) == OPARG);
    CHECK(LLCclose(2) == OPOK);
}

static void words(void)
{
    static const unsigned answers[] = { OPOK, OPINVAL, OPDUP, OPMANY, OPBUSY, OPLARGE, OPNONET, OPARG, 999 };
    static const unsigned statuses[] = { 0, STBUSY, STBUSY | STIO, STFAIL, STFAIL | STLATE, 999 };
    const char *texts[32];
    size_t count = 0, n, m;

    for (n = 0; n < sizeof answers / sizeof *answers; n++)
        texts[count++] = LLCopbits(answers[n]);
    for (n = 0; n < sizeof statuses / sizeof *statuses; n++)
        texts[count++] = LLCstbits(statuses[n], 'x');
    for (n = 0; n + 1 < sizeof statuses / sizeof *statuses; n++)
        texts[count++] = LLCstbits(statuses[n], 'r');
    texts[count++] = LLCstbits(0, '?');
    for (n = 0; n < count; n++)
        for (m = 0; m < count; m++)
            CHECK((strcmp(texts[n], texts[m]) == 0) == (n == m));
    CHECK(strcmp(LLCopbits(OPLARGE), "packet too large") == 0);
    CHECK(strcmp(LLCstbits(STFAIL | STLATE, 'r'), "receive timed out") == 0);
}

int main(void)
{
    words();
    what_the_environment_must_say();
    sockets_are_counted();
    CHECK(LLCon(8) == OPOK);
    options_are_looked_at();
    packets_go_and_come((unsigned char)atoi(getenv("LLC_STATION")));
    a_socket_is_busy();
    /* What is pending ends with it. */
    CHECK(LLCopen(8) == OPOK && LLCrecv(8, (unsigned char[2]){ 0 }, (char[1]){ 0 }, 1) == OPOK);
    CHECK(LLCoff() == OPOK);
    CHECK(LLCopen(8) == OPNONET);
    return 0;
}
