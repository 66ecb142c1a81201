// Registers for driver tests on this computer: memory by address, and what
// the hardware does by itself when one is looked at.

#include <stdint.h>
#include <string.h>

#define SLOTS 256u

static struct {
    uint32_t address;
    uint32_t value;
} slots[SLOTS];

static uint8_t line[8192];
static uint32_t line_put, line_taken;
static uint32_t usart_base;

static uint32_t *slot(uint32_t address) {
    uint32_t i = 0u;
    while (slots[i].address != address && slots[i].address != 0u) {
        i = (i + 1u) % SLOTS;
    }
    slots[i].address = address;
    return &slots[i].value;
}

volatile uint32_t *fake_register(uint32_t address) {
    uint32_t *value = slot(address);
    if (address == 0x40023800u) { // RCC_CR: oscillator and PLL follow their switches
        *value = (*value & ~(1u << 17 | 1u << 25)) | (*value & (1u << 16 | 1u << 24)) << 1;
    } else if (address == 0x40023808u) { // RCC_CFGR: the clock in use follows the one chosen
        *value = (*value & ~0xCu) | (*value & 3u) << 2;
    } else if (address == 0x40007004u) { // PWR_CSR1: overdrive follows PWR_CR1
        *value = *slot(0x40007000u) & (1u << 16 | 1u << 17);
    } else if (usart_base && address == usart_base + 0x1Cu) { // ISR
        *value = 1u << 6 | 1u << 7 | (line_taken < line_put ? 1u << 5 : 0u);
    } else if (usart_base && address == usart_base + 0x24u) { // RDR: reading takes a byte
        *value = line[line_taken++];
    }
    return value;
}

uint32_t fake_peek(uint32_t address) {
    return *slot(address);
}

void fake_poke(uint32_t address, uint32_t value) {
    *slot(address) = value;
}

void fake_receive(uint32_t base, const uint8_t *data, uint32_t size) {
    usart_base = base;
    memcpy(line + line_put, data, size);
    line_put += size;
}

// What guard.c does with it is not the driver's affair.
static uint32_t expired;

void guard_expire(void);
void guard_expire(void) {
    expired++;
}

uint32_t fake_expired(void);
uint32_t fake_expired(void) {
    return expired;
}
