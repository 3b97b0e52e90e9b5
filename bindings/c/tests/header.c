/* The header is C of 1989 and C++, alone and twice: it is compiled as each, and run. */
#include <llcio.h>
#include <llcio.h>

static void nothing(void)
{
}

int main(void)
{
    const unsigned char to[2] = { 2, LLCALL };
    unsigned char from[2];
    unsigned status = 0;
    char octet = 0;

    /* Nothing is on. */
    if (LLCoption(2, nothing, nothing, 0, 0, LLCPRI(7) | LLCACK | LLCCRC, 3) != OPNONET)
        return 1;
    if (LLCxmit(2, to, &octet, 1) != OPNONET || LLCrecv(2, from, &octet, 1) != OPNONET)
        return 2;
    if (LLCstatus(2, 'x', &status) != OPNONET || LLCreset(2, 'r') != OPNONET || status != 0)
        return 3;
    if (LLCopen(2) != OPNONET || LLCclose(2) != OPNONET || LLCoff() != OPNONET)
        return 4;
    return LLCon(0) == OPARG && LLCopbits(OPOK) && LLCstbits(0, 'x') ? 0 : 5;
}
