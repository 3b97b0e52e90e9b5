/*
 * llcio.h - LLC from C: real-time messages between stations, by IEEE 802.2, types 1 and 3.
 *
 * The interface of AirNET (Cain, Weaver, Colvin, Simoncic 1990). A station has sockets, which are its service access points;
 * each sends and receives at the same time, one operation in each direction. Operations are begun by LLCxmit and LLCrecv
 * and end by themselves: LLCstatus returns their state, and the signal function is called, if there is one.
 *
 * Where the station is, the environment says when LLCon is called:
 *     LLC_NETWORK   eth:IFNAME (needs CAP_NET_RAW), udp:GROUP:PORT, or udp:GROUP:PORT@ADDRESS for another interface than
 *                   the loopback's
 *     LLC_STATION   its number, 1 to 254; on Ethernet station n is 02:00:00:00:00:n
 *
 * Threads. Every function may be called from any thread, also at once. Signal functions are called one after the other on a
 * thread of the library's own; they may call every function here, shall return soon, and must not leave by longjmp or an
 * exception. Operations end on that thread too, just before their signal function is called: so a signal function must not
 * wait for another operation to end. The station answers others meanwhile.
 *
 * Build: cc program.c $(pkg-config --cflags --libs llcio)
 */
#ifndef LLCIO_H
#define LLCIO_H

#ifdef __cplusplus
extern "C" {
#endif

/* What every operation returns. */
#define OPOK      0x00u /* operation accepted */
#define OPINVAL   0x01u /* invalid socket: odd, not 2 to 254, or not open */
#define OPDUP     0x02u /* duplicate socket: open already; or the network is on already */
#define OPMANY    0x04u /* too many sockets: more than LLCon was asked for, or there are */
#define OPBUSY    0x08u /* socket busy: an operation is pending */
#define OPLARGE   0x10u /* packet too large: LLCMAX octets, with a CRC 4 less */
#define OPNONET   0x20u /* no network: it is not on, or cannot be (errno says why), or it failed */
#define OPARG     0x40u /* invalid argument: null where something is needed, or out of its range */

/* Bits of a status. 0: nothing is pending, and what was has succeeded or was reset. */
#define STBUSY    0x01u /* an operation is pending; what was lent to it is the library's */
#define STIO      0x02u /* with STBUSY: I/O in progress, the packet is on its way or waits for its answer */
#define STFAIL    0x04u /* the last operation failed */
#define STLATE    0x08u /* with STFAIL: it was not done in time */

/* The class of a socket's messages: a priority, 0 (lowest) to 7, and any of the others. */
#define LLCPRI(n) ((n) & 7)
#define LLCACK    8  /* acknowledged (type 3): done when the other station has it. To one station only. */
#define LLCCRC    16 /* with a CRC-32, at both ends alike; what fails it is dropped */

#define LLCALL    255  /* as a station: all of them, but the sender */
#define LLCMAX    1497 /* octets of a packet */

/*
 * Turns the network on, with at most `sockets` (1 to 127) open at once.
 * OPARG, OPMANY; OPDUP: it is on; OPNONET: the environment names no network or station, there is no such interface or no
 * right to use it, or, over UDP, this machine has the station already: errno says which (EINVAL: the environment).
 */
unsigned LLCon(int sockets);

/*
 * Closes all sockets, whatever is pending, and leaves the network. When it returns nothing that was lent is used any more, and
 * no signal function is called: it waits for one that is under way. A signal function may call it; then the network is left
 * when that returns, for which LLCon waits.
 * OPNONET: it is not on.
 */
unsigned LLCoff(void);

/*
 * Opens a socket: even, 2 to 254. Until LLCoption it has no signal functions, no time limits, class 0 and one try. Packets that
 * come to an open socket wait for LLCrecv, 64 at most, the highest priority first; then unacknowledged ones are lost, and
 * acknowledged ones refused, so that their sender tries again.
 * OPINVAL, OPDUP, OPMANY, OPNONET.
 */
unsigned LLCopen(int sock);

/*
 * Closes a socket in which nothing is pending. Packets that wait in it are lost.
 * OPINVAL, OPBUSY, OPNONET.
 */
unsigned LLCclose(int sock);

/*
 * Sets options.
 *     xsignal   called when a transmit operation has ended, well or not; or null
 *     rsignal   the same for a receive operation
 *     xtime     how long a transmit operation may take, in units of 10 ms; 0: as long as it likes
 *     rtime     the same for a receive operation
 *     cls       LLCPRI(n) | LLCACK | LLCCRC
 *     tries     how often an acknowledged packet is sent, at most, 10 ms apart, until it is answered, up to 65535; 0 is 1.
 *               Unacknowledged ones are sent once.
 * They are those of operations that begin afterwards, but the signal functions at once.
 * OPINVAL, OPARG, OPNONET.
 */
unsigned LLCoption(int sock, void (*xsignal)(), void (*rsignal)(), int xtime, int rtime, int cls, int tries);

/*
 * Sends `size` octets to netadr = { socket, station }; a group of sockets is odd, 255 everybody's. The operation has ended
 * when the packet has left or, acknowledged, when it is answered. It fails (STFAIL) if every try went unanswered or the other
 * station refused it, and is late (STFAIL | STLATE) after xtime. Until then `packet` is the library's; netadr is read in
 * this call. `packet` may be null if `size` is 0.
 * OPINVAL, OPBUSY, OPLARGE, OPNONET; OPARG: null, socket or station 0, or an acknowledged packet to more than one.
 */
unsigned LLCxmit(int sock, const unsigned char *netadr, const void *packet, unsigned size);

/*
 * Lends room for one packet of up to `size` octets, and for the { socket, station } that it came from. The operation has ended
 * when a packet is there; of one that is larger the rest is lost, and it has failed (STFAIL). It is late (STFAIL | STLATE)
 * after rtime. Until then `netadr` and `packet` are the library's; room behind a shorter packet is unchanged.
 * OPINVAL, OPBUSY, OPNONET; OPARG: null.
 */
unsigned LLCrecv(int sock, unsigned char *netadr, void *packet, unsigned size);

/*
 * Gives up the transmit ('x') or receive ('r') operation, and gives back what was lent to it; its signal function is not called,
 * if it is not under way. With 'r' packets that wait are lost. Nothing pending is no error.
 * OPINVAL, OPNONET; OPARG: another direction.
 */
unsigned LLCreset(int sock, char direction);

/*
 * Sets *status to the STxxx bits of a direction, 'x' or 'r'.
 * OPINVAL, OPNONET; OPARG: another direction, or null.
 */
unsigned LLCstatus(int sock, char direction, unsigned *status);

/* What an operation returned, in words; a constant text. */
const char *LLCopbits(unsigned opstatus);

/* What a status says, in words; a constant text. */
const char *LLCstbits(unsigned status, char direction);

#ifdef __cplusplus
}
#endif

#endif
