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
static uint32_t usart_base, nrf_base;
static uint32_t is_nrf_byte_new;

// Every change of a register by the driver, in order. A write shows when the
// next register is looked at, or the log.
#define LOG_LENGTH 256u
static struct {
    uint32_t address;
    uint32_t value;
} changes[LOG_LENGTH];
static uint32_t change_count;
static volatile uint32_t *looked_at;
static uint32_t looked_at_address, seen;

// Bits that the hardware holds at a value, whatever is written.
static struct {
    uint32_t address;
    uint32_t mask;
    uint32_t value;
} held[32];
static uint32_t held_count;

void fake_hold(uint32_t address, uint32_t mask, uint32_t value);
void fake_hold(uint32_t address, uint32_t mask, uint32_t value) {
    held[held_count].address = address;
    held[held_count].mask = mask;
    held[held_count++].value = value;
}

// Where the next received byte is to be read, and bits that say that there is one; 0: none.
static uint32_t data_address, state_address, state_mask, state_if_any;

void fake_line(uint32_t data, uint32_t state, uint32_t mask, uint32_t if_any);
void fake_line(uint32_t data, uint32_t state, uint32_t mask, uint32_t if_any) {
    data_address = data;
    state_address = state;
    state_mask = mask;
    state_if_any = if_any;
}

static void note_change(void) {
    if (looked_at != 0 && *looked_at != seen && change_count < LOG_LENGTH) {
        changes[change_count].address = looked_at_address;
        changes[change_count++].value = *looked_at;
    }
    looked_at = 0;
}

static uint32_t *slot(uint32_t address) {
    uint32_t i = 0u;
    while (slots[i].address != address && slots[i].address != 0u) {
        i = (i + 1u) % SLOTS;
    }
    slots[i].address = address;
    return &slots[i].value;
}

volatile uint32_t *fake_register(uint32_t address) {
    note_change();
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
    } else if (nrf_base && address == nrf_base + 0x108u) { // RXDRDY: set once for each byte
        *value = is_nrf_byte_new ? 1u : *value;
        is_nrf_byte_new = 0u;
    } else if (nrf_base && address == nrf_base + 0x518u) { // RXD: reading brings the next byte
        *value = line[line_taken++];
        is_nrf_byte_new = line_taken < line_put;
    } else if (nrf_base && address == nrf_base + 0x51Cu) { // TXD: is sent at once
        *slot(nrf_base + 0x11Cu) = 1u;
    }
    for (uint32_t i = 0u; i < held_count; i++) {
        if (held[i].address == address) {
            *value = (*value & ~held[i].mask) | held[i].value;
        }
    }
    if (state_address && address == state_address) {
        *value = (*value & ~state_mask) |
                 (line_taken < line_put ? state_if_any : state_mask & ~state_if_any);
    } else if (data_address && address == data_address && line_taken < line_put) {
        *value = line[line_taken++];
    }
    looked_at = value;
    looked_at_address = address;
    seen = *value;
    return value;
}

// The change of that number; its address is 0 behind the last.
uint64_t fake_change(uint32_t number);
uint64_t fake_change(uint32_t number) {
    note_change();
    return number < change_count ? (uint64_t)changes[number].address << 32 | changes[number].value
                                 : 0u;
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

void fake_nrf_receive(uint32_t base, const uint8_t *data, uint32_t size);
void fake_nrf_receive(uint32_t base, const uint8_t *data, uint32_t size) {
    nrf_base = base;
    memcpy(line + line_put, data, size);
    line_put += size;
    is_nrf_byte_new = 1u;
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
