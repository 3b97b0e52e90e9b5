/*
 * A gateway between a federation of an RTI and the bundle converter: a federate that hands on what the others say to the
 * gateways of other sites, and what those say to its own federation. So federations become one over a wide area that
 * knows nothing of HLA: attribute updates, best effort, as ordinary messages; interactions, reliable, as priority messages.
 *
 *     hla_gateway RTI NUMBER CENTRAL FOM        rti://127.0.0.1:14321 1 127.0.0.1:3458 hla.xml
 *
 * It ends on SIGTERM and SIGINT, and prints what it handed on.
 */
#include "hla.h"

#include <bundle.h>

#include <csignal>
#include <cstdlib>
#include <map>

static bundle_host *host;
static volatile std::sig_atomic_t ended;

static void end(int)
{
    ended = 1;
    bundle_wake(host);
}

static void need(int answer, const char *what)
{
    if (answer >= 0)
        return;
    std::fprintf(stderr, "hla_gateway: %s: %s\n", what, bundle_error());
    std::exit(1);
}

/* A message is a letter, and: T an object's name, a 0 and its state; F a shot. */
class Gateway : public Federate
{
public:
    void seen(ObjectInstanceHandle object, const std::string &value) override
    {
        const std::wstring name = rti->getObjectInstanceName(object);
        const std::string message = "T" + std::string(name.begin(), name.end()) + '\0' + value;
        to_bundles += bundle_send_in(host, "tanks", 0, message.data(), message.size(), 0, BUNDLE_ANYTIME) == BUNDLE_OK;
    }

    void heard(const std::string &value) override
    {
        const std::string message = "F" + value;
        to_bundles +=
            bundle_send_in(host, "shots", 0, message.data(), message.size(), BUNDLE_PRIORITY, 0) == BUNDLE_OK;
    }

    /* What another gateway said. */
    void hand_on(const bundle_from &from, const std::string &message)
    {
        const size_t zero = message.find('\0');
        if (message[0] == 'F') {
            shoot(message.substr(1));
        } else if (message[0] == 'T' && zero != std::string::npos) {
            /* Here it is an object of this federate: one for each of each site. */
            const auto whose = std::make_pair(from.source, message.substr(1, zero - 1));
            if (!there.count(whose))
                there[whose] = rti->registerObjectInstance(tank);
            update(there[whose], message.substr(zero + 1));
        }
        from_bundles++;
    }

    unsigned long to_bundles = 0, from_bundles = 0;

private:
    std::map<std::pair<uint32_t, std::string>, ObjectInstanceHandle> there;
};

static void take(void *user, const bundle_from *from, const void *body, size_t size)
{
    /* No exception may leave this. */
    try {
        if (size > 0)
            static_cast<Gateway *>(user)->hand_on(*from, std::string(static_cast<const char *>(body), size));
    } catch (const Exception &exception) {
        std::fprintf(stderr, "hla_gateway: %ls\n", exception.what().c_str());
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: hla_gateway RTI NUMBER CENTRAL FOM\n");
        return 2;
    }
    bundle_settings settings = BUNDLE_SETTINGS;
    settings.format = BUNDLE_WIDE;
    settings.timers = BUNDLE_PROCESSOR;
    settings.number = static_cast<uint32_t>(std::atoi(argv[2]));
    settings.central = argv[3];
    need(bundle_open(&host, &settings), "bundle_open");
    const bundle_range tanks = { 80000, 80000 }, shots = { 80001, 80001 };
    need(bundle_define(host, "tanks", &tanks, 1), "bundle_define");
    need(bundle_define(host, "shots", &shots, 1), "bundle_define");
    for (const char *region : { "tanks", "shots" }) {
        need(bundle_publish(host, region), "bundle_publish");
        need(bundle_subscribe(host, region), "bundle_subscribe");
    }
    Gateway gateway;
    try {
        gateway.join(argv[1], "gateway", argv[4]);
        std::signal(SIGTERM, end);
        std::signal(SIGINT, end);
        std::printf("ready\n");
        std::fflush(stdout);
        while (!ended) {
            gateway.rti->evokeMultipleCallbacks(0.0, 0.01);
            need(bundle_turn(host, 2, take, &gateway), "bundle_turn");
        }
        gateway.leave();
    } catch (const Exception &exception) {
        std::fprintf(stderr, "hla_gateway: %ls\n", exception.what().c_str());
        return 1;
    }
    struct bundle_figures figures;
    figures.size = sizeof figures;
    need(bundle_figures(host, &figures), "bundle_figures");
    need(bundle_close(host), "bundle_close");
    std::printf("%lu messages to the converter in %llu bundles, %lu from it in %llu\n", gateway.to_bundles,
                static_cast<unsigned long long>(figures.bundles_sent), gateway.from_bundles,
                static_cast<unsigned long long>(figures.bundles_received));
    return 0;
}
