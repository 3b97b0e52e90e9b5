/* A network that carries less than a host sends: it says so, and messages with priority pass. */
#include "bundle_check.h"

int main(int argc, char **argv)
{
    static char body[400];
    bundle_host *from, *to;
    struct heard *heard = calloc(1, sizeof *heard);
    int wide, code = BUNDLE_OK, n;

    CHECK(argc == 3 && heard != NULL);
    wide = is_wide(argv);
    from = opened(argv, 1);
    to = opened(argv, 2);
    CHECK(bundle_join(to, 0, 9) == BUNDLE_OK);
    said(to, wide);
    said(from, wide);
    while (code != BUNDLE_ECONGESTED) {
        for (n = 0; n < 20 && code == BUNDLE_OK; n++)
            code = bundle_send(from, 6, body, sizeof body, 0, BUNDLE_ANYTIME);
        CHECK(code == BUNDLE_OK || code == BUNDLE_ECONGESTED || code == BUNDLE_EFULL);
        if (code == BUNDLE_EFULL)
            code = BUNDLE_OK;
        CHECK(bundle_turn(from, 1, NULL, NULL) == 0 && bundle_turn(to, 1, hear, heard) >= 0);
    }
    CHECK(strstr(bundle_error(), "congested") != NULL && figures_of(from).dropped > 0);
    if (wide) {
        CHECK(bundle_send(from, 7, "urgent", 6, BUNDLE_PRIORITY, BUNDLE_ANYTIME) == BUNDLE_OK);
        while (heard->of[7] == 0)
            CHECK(bundle_turn(from, 1, NULL, NULL) == 0 && bundle_turn(to, 1, hear, heard) >= 0);
    }
    CHECK(bundle_close(from) == BUNDLE_OK && bundle_close(to) == BUNDLE_OK);
    free(heard);
    return 0;
}
