/* The header compiles as C99 and as C++, and may be included twice. This program is built as each of them and run. */
#include <bundle.h>
#include <bundle.h>

static void take(void *user, const struct bundle_from *from, const void *body, size_t size)
{
    (void)user, (void)from, (void)body, (void)size;
}

int main(void)
{
    struct bundle_settings settings = BUNDLE_SETTINGS;
    const struct bundle_range range = { 1, 2 };
    struct bundle_figures figures;
    struct bundle_from from;
    char octet = 0;

    /* Without an open host. */
    figures.size = sizeof figures;
    settings.format = BUNDLE_WIDE;
    if (bundle_open(0, &settings) != BUNDLE_EARG || bundle_close(0) != BUNDLE_EARG)
        return 1;
    if (bundle_join(0, 1, 2) != BUNDLE_EARG || bundle_leave(0, 1, 2) != BUNDLE_EARG)
        return 2;
    if (bundle_define(0, "a", &range, 1) != BUNDLE_EARG || bundle_publish(0, "a") != BUNDLE_EARG)
        return 3;
    if (bundle_unpublish(0, "a") != BUNDLE_EARG || bundle_subscribe(0, "a") != BUNDLE_EARG)
        return 4;
    if (bundle_unsubscribe(0, "a") != BUNDLE_EARG || bundle_wake(0) != BUNDLE_EARG)
        return 5;
    if (bundle_send(0, 1, &octet, 1, BUNDLE_PRIORITY, BUNDLE_ANYTIME) != BUNDLE_EARG)
        return 6;
    if (bundle_send_in(0, "a", 0, &octet, 1, 0, BUNDLE_ANYTIME) != BUNDLE_EARG)
        return 7;
    if (bundle_turn(0, 0, take, 0) != BUNDLE_EARG || bundle_receive(0, &from, &octet, 1, 0) != BUNDLE_EARG)
        return 8;
    if (bundle_saturate(0, 1) != BUNDLE_EARG || bundle_figures(0, &figures) != BUNDLE_EARG)
        return 9;
    return bundle_page(0, &octet, 1) == BUNDLE_EARG && *bundle_text(BUNDLE_EARG) && *bundle_error() ? 0 : 10;
}
