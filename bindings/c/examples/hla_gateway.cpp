/*
 * A gateway between an HLA federation and the bundle converter: a federate that forwards updates and interactions of its
 * federation to the gateways of other sites, and theirs to its federation. Federations are thus joined over a wide area without
 * HLA support: attribute updates (best effort) as ordinary messages, interactions (reliable) as priority messages.
 *
 *     hla_gateway RTI NUMBER CENTRAL FOM        rti://127.0.0.1:14321 1 127.0.0.1:3458 hla.xml
 *
 * It ends on SIGTERM and SIGINT and prints the numbers of forwarded messages.
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

/* A message is a letter with its argument: T, an object name, NUL and the state; or F and a shot. */
class Gateway : public Federate
{
public:
    void updated(ObjectInstanceHandle object, const std::string &value) override
    {
        const std::wstring name = rti->getObjectInstanceName(object);
        const std::string message = "T" + std::string(name.begin(), name.end()) + '\0' + value;
        to_bundles += bundle_send_in(host, "tanks", 0, message.data(), message.size(), 0, BUNDLE_ANYTIME) == BUNDLE_OK;
    }

    void shot_received(const std::string &value) override
    {
        const std::string message = "F" + value;
        to_bundles +=
            bundle_send_in(host, "shots", 0, message.data(), message.size(), BUNDLE_PRIORITY, 0) == BUNDLE_OK;
    }

    /* Forwards a message of another gateway. */
    void forward(const bundle_from &from, const std::string &message)
    {
        const size_t zero = message.find('\0');
        if (message[0] == 'F') {
            shoot(message.substr(1));
        } else if (message[0] == 'T' && zero != std::string::npos) {
            /* This federate registers one object for each object of another site. */
            const auto owner = std::make_pair(from.source, message.substr(1, zero - 1));
            if (!objects.count(owner))
                objects[owner] = rti->registerObjectInstance(tank);
            update(objects[owner], message.substr(zero + 1));
        }
        from_bundles++;
    }

    unsigned long to_bundles = 0, from_bundles = 0;

private:
    std::map<std::pair<uint32_t, std::string>, ObjectInstanceHandle> objects;
};

static void take(void *user, const bundle_from *from, const void *body, size_t size)
{
    /* Exceptions must not leave this function. */
    try {
        if (size > 0)
            static_cast<Gateway *>(user)->forward(*from, std::string(static_cast<const char *>(body), size));
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
