/*
 * A federate that knows nothing of bundles: it sends its position 50 times per second, and fires once it has seen others COUNT
 * times. It ends half a second after it has also received a shot, since others may still wait for its own.
 *
 *     hla_tank RTI NAME COUNT FOM        rti://127.0.0.1:14321 left 100 hla.xml
 */
#include "hla.h"

#include <chrono>
#include <cstdlib>
#include <thread>

/* In steps of 20 ms. */
static const int AFTER = 25;

class Tank : public Federate
{
public:
    void updated(ObjectInstanceHandle, const std::string &value) override
    {
        if (++times == 1)
            std::printf("sees %s\n", value.c_str());
    }

    void shot_received(const std::string &value) override
    {
        if (++shots == 1)
            std::printf("hears a shot of %s\n", value.c_str());
    }

    int times = 0, shots = 0;
};

int main(int argc, char **argv)
{
    if (argc != 5) {
        std::fprintf(stderr, "usage: hla_tank RTI NAME COUNT FOM\n");
        return 2;
    }
    const std::string name = argv[2];
    const int count = std::atoi(argv[3]);
    Tank tank;
    try {
        tank.join(argv[1], name, argv[4]);
        const ObjectInstanceHandle own = tank.rti->registerObjectInstance(tank.tank);
        int step = 0, after = 0;
        for (; after < AFTER; step++) {
            tank.update(own, name + " at " + std::to_string(step));
            if (tank.times >= count)
                tank.shoot(name);
            tank.rti->evokeMultipleCallbacks(0.0, 0.01);
            after += tank.times >= count && tank.shots > 0;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        tank.leave();
        std::printf("seen %d times in %d steps\n", tank.times, step);
    } catch (const Exception &exception) {
        std::fprintf(stderr, "hla_tank: %ls\n", exception.what().c_str());
        return 1;
    }
    return 0;
}
