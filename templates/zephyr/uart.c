// The link: the UART that the device tree chooses, driven by its interrupts.
//
// Bytes wait in two rings. What comes is taken off the chip at once, so that
// none is lost while the runtime is busy: the ring holds more than the host
// sends before it waits for an answer. What goes is handed to the interrupt.
//
// SPDX-License-Identifier: Apache-2.0

#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/ring_buffer.h>

#include "app_config.h"
#include "port.h"

#if DT_HAS_CHOSEN(utvm_uart)
#define UART_NODE DT_CHOSEN(utvm_uart)
#else
#define UART_NODE DT_CHOSEN(zephyr_console)
#endif

// A frame as it is on the line is a little longer than in memory.
#define RECEIVED_BYTES (2u * UTVM_RX_BYTES(CONFIG_UTVM_PAYLOAD_BYTES))
// Taken or given at once: what the FIFOs of most chips hold.
#define MOVED_BYTES 16u
// Longer than this takes no UART for what its ring holds.
#define DRAIN_TIMEOUT_MS 2000

static const struct device *const uart = DEVICE_DT_GET(UART_NODE);

RING_BUF_DECLARE(received, RECEIVED_BYTES);
RING_BUF_DECLARE(to_send, CONFIG_UTVM_SEND_RING_BYTES);
static K_SEM_DEFINE(moved, 0, 1);
// The ring was full, and the chip keeps the next byte.
static volatile bool is_held_back;

static bool receive(const struct device *dev) {
    uint8_t data[MOVED_BYTES];
    bool any = false;
    while (uart_irq_rx_ready(dev) > 0) {
        const uint32_t room = MIN(ring_buf_space_get(&received), sizeof data);
        if (room == 0u) {
            is_held_back = true;
            uart_irq_rx_disable(dev);
            break;
        }
        const int got = uart_fifo_read(dev, data, (int)room);
        if (got <= 0) {
            break;
        }
        (void)ring_buf_put(&received, data, (uint32_t)got);
        any = true;
    }
    return any;
}

static bool send(const struct device *dev) {
    uint8_t data[MOVED_BYTES];
    bool any = false;
    while (uart_irq_tx_ready(dev) > 0) {
        const uint32_t size = ring_buf_peek(&to_send, data, sizeof data);
        if (size == 0u) {
            uart_irq_tx_disable(dev);
            break;
        }
        const int put = uart_fifo_fill(dev, data, (int)size);
        if (put <= 0) {
            break;
        }
        (void)ring_buf_get(&to_send, data, (uint32_t)put);
        any = true;
    }
    return any;
}

// Does what can be done, whatever the interrupt was for: a driver whose
// interrupts are edges, as that of Arm's CMSDK UART, says of a byte that came
// early that nothing is pending.
static void handle(const struct device *dev, void *user) {
    ARG_UNUSED(user);
    (void)uart_irq_update(dev);
    const bool came = receive(dev);
    const bool went = send(dev);
    if (came || went) {
        k_sem_give(&moved);
    }
}

// The speed that the host uses, where it is not the device tree's and where the
// driver can set it: that of an emulated UART need not.
static int set_speed(void) {
    struct uart_config config;
    int err = uart_config_get(uart, &config);
    if (err == 0 && config.baudrate != UTVM_UART_BAUD) {
        config.baudrate = UTVM_UART_BAUD;
        err = uart_configure(uart, &config);
    }
    return err == -ENOSYS || err == -ENOTSUP ? 0 : err;
}

int uart_start(void) {
    if (!device_is_ready(uart)) {
        return -ENODEV;
    }
    int err = set_speed();
    if (err == 0) {
        err = uart_irq_callback_user_data_set(uart, handle, NULL);
    }
    if (err == 0) {
        uart_irq_rx_enable(uart);
    }
    return err;
}

size_t uart_take(uint8_t *data, size_t size) {
    const size_t taken = ring_buf_get(&received, data, (uint32_t)size);
    if (taken > 0u && is_held_back) {
        // The byte that waits in the chip has no interrupt any more.
        const unsigned int key = irq_lock();
        is_held_back = false;
        uart_irq_rx_enable(uart);
        handle(uart, NULL);
        irq_unlock(key);
    }
    return taken;
}

size_t uart_give(const uint8_t *data, size_t size) {
    const size_t given = ring_buf_put(&to_send, data, (uint32_t)size);
    if (given > 0u) {
        uart_irq_tx_enable(uart);
    }
    return given;
}

void uart_wait(void) {
    (void)k_sem_take(&moved, K_FOREVER);
}

void uart_drain(void) {
    const int64_t end = k_uptime_get() + DRAIN_TIMEOUT_MS;
    while (k_uptime_get() < end) {
        if (ring_buf_is_empty(&to_send) && uart_irq_tx_complete(uart) > 0) {
            return;
        }
        k_sleep(K_MSEC(1));
    }
}
