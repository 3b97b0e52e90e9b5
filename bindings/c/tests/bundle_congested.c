/* A network with less capacity than the offered load: sends fail with BUNDLE_ECONGESTED, and priority messages pass. */
#include "bundle_check.h"

int main(int argc, char **argv)
{
    static char body[400];
    bundle_host *from, *to;
    struct received *received = calloc(1, sizeof *received);
    int format2, code = BUNDLE_OK, n;

    CHECK(argc == 3 && received != NULL);
    format2 = is_format2(argv);
    from = opened(argv, 1);
    to = opened(argv, 2);
    CHECK(bundle_join(to, 0, 9) == BUNDLE_OK);
    drain(to, format2);
    drain(from, format2);
    while (code != BUNDLE_ECONGESTED) {
        for (n = 0; n < 20 && code == BUNDLE_OK; n++)
            code = bundle_send(from, 6, body, sizeof body, 0, BUNDLE_ANYTIME);
        CHECK(code == BUNDLE_OK || code == BUNDLE_ECONGESTED || code == BUNDLE_EFULL);
        if (code == BUNDLE_EFULL)
            code = BUNDLE_OK;
        CHECK(bundle_turn(from, 1, NULL, NULL) == 0 && bundle_turn(to, 1, record, received) >= 0);
    }
    CHECK(strstr(bundle_error(), "congested") != NULL && figures_of(from).dropped > 0);
    if (format2) {
        CHECK(bundle_send(from, 7, "urgent", 6, BUNDLE_PRIORITY, BUNDLE_ANYTIME) == BUNDLE_OK);
        while (received->of[7] == 0)
            CHECK(bundle_turn(from, 1, NULL, NULL) == 0 && bundle_turn(to, 1, record, received) >= 0);
    }
    CHECK(bundle_close(from) == BUNDLE_OK && bundle_close(to) == BUNDLE_OK);
    free(received);
    return 0;
}
