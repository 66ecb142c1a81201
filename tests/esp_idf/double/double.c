// As much of ESP-IDF as the port uses, in a POSIX process. Standard input and
// output are its line. Threads are contexts, of which a higher one never waits
// for a lower one. The thread of esp_timer is the handler of SIGALRM. A fault is
// a panic. A restart is the program anew, with the same RAM behind __NOINIT_ATTR.
//
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "driver/uart.h"
#include "driver/usb_serial_jtag.h"
#include "esp_cpu.h"
#include "esp_private/panic_internal.h"
#include "esp_random.h"
#include "esp_system.h"
#include "esp_timer.h"
#include "freertos/task.h"

#include "app_config.h"

#define RAM_VARIABLE "ESP_IDF_DOUBLE_RAM"
#define PAGE 4096u
#define SIGNAL_STACK_BYTES 65536u
#define LATER_US 1000

void app_main(void);
void __wrap_esp_panic_handler(panic_info_t *info);
void esp_panic_handler(panic_info_t *info);

/// RAM that outlives a restart ///

extern char __start_noinit[], __stop_noinit[];
static bool is_power_on = true;

// The bytes are there twice: at their own addresses, and where code in them is executed.
static void open_ram(void) {
    char *begin = (char *)((uintptr_t)__start_noinit & ~(uintptr_t)(PAGE - 1));
    const size_t size = ((size_t)(__stop_noinit - begin) + PAGE - 1) & ~(size_t)(PAGE - 1);
    const char *old = getenv(RAM_VARIABLE);
    if (old != NULL) {
        const off_t at = __start_noinit - begin;
        const size_t kept = (size_t)(__stop_noinit - __start_noinit);
        if (pread(atoi(old), __start_noinit, kept, at) != (ssize_t)kept) {
            abort();
        }
        close(atoi(old));
        is_power_on = false;
    }
    const int fd = memfd_create("ram", 0);
    if (fd < 0 || pwrite(fd, begin, size, 0) != (ssize_t)size) {
        abort();
    }
    const int map = MAP_SHARED | MAP_FIXED;
    const int rights = PROT_READ | PROT_WRITE | (UTVM_CODE_OFFSET ? 0 : PROT_EXEC);
    if (mmap(begin, size, rights, map, fd, 0) == MAP_FAILED ||
        (UTVM_CODE_OFFSET != 0u &&
         mmap(begin + UTVM_CODE_OFFSET, size, PROT_READ | PROT_EXEC, map, fd, 0) == MAP_FAILED)) {
        abort();
    }
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    setenv(RAM_VARIABLE, number, 1);
}

esp_reset_reason_t esp_reset_reason(void) {
    return is_power_on ? ESP_RST_POWERON : ESP_RST_SW;
}

void esp_restart(void) {
    char *const argv[] = {(char *)"image.elf", NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", argv);
    _exit(1);
}

void esp_panic_handler(panic_info_t *info) {
    (void)info;
    esp_restart();
}

uint32_t esp_random(void) {
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
        abort();
    }
    return value;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t esp_cpu_get_cycle_count(void) {
    return (uint32_t)(now_ns() * (UTVM_CPU_HZ / 1000000000u));
}

/// Threads: that of app_main, and one above it ///

struct thread {
    ucontext_t context;
    StaticTask_t *memory;
    volatile uint32_t notes;
};
static struct thread lower, upper;
static struct thread *volatile current = &lower;
static volatile bool is_deleted;
static volatile sig_atomic_t critical;

void double_enter_critical(portMUX_TYPE *lock) {
    (void)lock;
    critical++;
}

void double_exit_critical(portMUX_TYPE *lock) {
    (void)lock;
    critical--;
}

BaseType_t xPortGetCoreID(void) {
    return 0;
}

TaskHandle_t xTaskGetCurrentTaskHandle(void) {
    return current;
}

static void switch_to(struct thread *next) {
    struct thread *before = current;
    current = next;
    swapcontext(&before->context, &next->context);
}

TaskHandle_t xTaskCreateStaticPinnedToCore(void (*code)(void *), const char *name,
                                           uint32_t stack_bytes, void *argument,
                                           UBaseType_t priority, StackType_t *stack,
                                           StaticTask_t *memory, BaseType_t core) {
    (void)name, (void)argument, (void)priority, (void)core;
    upper.memory = memory;
    upper.notes = 0;
    is_deleted = false;
    getcontext(&upper.context);
    upper.context.uc_stack.ss_sp = stack;
    upper.context.uc_stack.ss_size = stack_bytes;
    makecontext(&upper.context, (void (*)(void))code, 1, NULL);
    switch_to(&upper); // until it waits
    return &upper;
}

BaseType_t xTaskNotifyGive(TaskHandle_t task) {
    task->notes++;
    if (task == &upper && current == &lower && !is_deleted) {
        switch_to(&upper);
    }
    return pdTRUE;
}

uint32_t ulTaskNotifyTake(BaseType_t clears, TickType_t wait) {
    (void)clears, (void)wait;
    struct thread *own = current;
    while (own->notes == 0u) {
        if (own == &lower) {
            abort(); // nobody could give one
        }
        switch_to(&lower);
    }
    const uint32_t notes = own->notes;
    own->notes = 0;
    return notes;
}

// Of the timer's thread: when that is done, the lower thread goes on.
void vTaskDelete(TaskHandle_t task) {
    if (task != &upper) {
        abort();
    }
    is_deleted = true;
}

void vTaskDelay(TickType_t ticks) {
    usleep(ticks * 1000u);
}

/// esp_timer ///

struct esp_timer {
    void (*callback)(void *);
    uint64_t due_ns, period_ns;
};
static struct esp_timer timers[4];
static size_t timer_count;

static void set_alarm(void) {
    const uint64_t now = now_ns();
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < timer_count; i++) {
        if (timers[i].due_ns != 0u && timers[i].due_ns < next) {
            next = timers[i].due_ns;
        }
    }
    struct itimerval alarm;
    memset(&alarm, 0, sizeof alarm);
    if (next != UINT64_MAX) {
        const uint64_t us = next > now ? (next - now) / 1000u + 1u : 1u;
        alarm.it_value.tv_sec = (time_t)(us / 1000000u);
        alarm.it_value.tv_usec = (suseconds_t)(us % 1000000u);
    }
    setitimer(ITIMER_REAL, &alarm, NULL);
}

static void on_alarm(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    if (critical) {
        const struct itimerval later = {.it_value = {.tv_usec = LATER_US}};
        setitimer(ITIMER_REAL, &later, NULL);
        return;
    }
    if (current == &upper) {
        upper.memory->pxDummy1 = context;
    }
    for (size_t i = 0; i < timer_count; i++) {
        struct esp_timer *timer = &timers[i];
        if (timer->due_ns != 0u && timer->due_ns <= now_ns()) {
            timer->due_ns = timer->period_ns != 0u ? now_ns() + timer->period_ns : 0u;
            timer->callback(NULL);
        }
    }
    set_alarm();
    if (is_deleted && current == &upper) {
        current = &lower;
        setcontext(&lower.context);
    }
}

esp_err_t esp_timer_create(const esp_timer_create_args_t *args, esp_timer_handle_t *timer) {
    timers[timer_count].callback = args->callback;
    *timer = &timers[timer_count++];
    return ESP_OK;
}

static esp_err_t start(esp_timer_handle_t timer, uint64_t us, uint64_t period_us) {
    if (timer->due_ns != 0u) {
        return ESP_FAIL;
    }
    timer->period_ns = period_us * 1000u;
    timer->due_ns = now_ns() + us * 1000u;
    set_alarm();
    return ESP_OK;
}

esp_err_t esp_timer_start_once(esp_timer_handle_t timer, uint64_t us) {
    return start(timer, us, 0);
}

esp_err_t esp_timer_start_periodic(esp_timer_handle_t timer, uint64_t us) {
    return start(timer, us, us);
}

esp_err_t esp_timer_stop(esp_timer_handle_t timer) {
    const bool runs = timer->due_ns != 0u;
    timer->due_ns = 0u;
    set_alarm();
    return runs ? ESP_OK : ESP_FAIL;
}

/// The line ///

static int take(void *data, uint32_t size, TickType_t wait) {
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    const int timeout = wait == portMAX_DELAY ? -1 : (int)wait;
    if (size == 0u || poll(&fd, 1, timeout) <= 0) {
        return 0;
    }
    const ssize_t got = read(STDIN_FILENO, data, size);
    if (got == 0) {
        _exit(0); // the host has gone
    }
    return got < 0 ? 0 : (int)got;
}

static int give(const void *data, size_t size) {
    struct pollfd fd = {STDOUT_FILENO, POLLOUT, 0};
    if (poll(&fd, 1, 0) <= 0) {
        return 0;
    }
    const ssize_t put = write(STDOUT_FILENO, data, size);
    if (put < 0 && errno == EPIPE) {
        _exit(0);
    }
    return put < 0 ? 0 : (int)put;
}

esp_err_t uart_driver_install(int port, int rx_bytes, int tx_bytes, int queue, void *out,
                              int flags) {
    (void)port, (void)queue, (void)out, (void)flags;
    return rx_bytes > 128 && tx_bytes > 128 ? ESP_OK : ESP_FAIL;
}

esp_err_t uart_param_config(int port, const uart_config_t *config) {
    return port == UART_NUM_0 && config->baud_rate == UTVM_UART_BAUD ? ESP_OK : ESP_FAIL;
}

int uart_read_bytes(int port, void *data, uint32_t size, TickType_t wait) {
    (void)port;
    return take(data, size, wait);
}

int uart_write_bytes(int port, const void *data, size_t size) {
    (void)port;
    return give(data, size);
}

esp_err_t uart_get_tx_buffer_free_size(int port, size_t *size) {
    (void)port;
    *size = 100; // so that writes are cut
    return ESP_OK;
}

esp_err_t uart_wait_tx_done(int port, TickType_t wait) {
    (void)port, (void)wait;
    return ESP_OK;
}

esp_err_t usb_serial_jtag_driver_install(usb_serial_jtag_driver_config_t *config) {
    return config->rx_buffer_size > 64u && config->tx_buffer_size > 64u ? ESP_OK : ESP_FAIL;
}

int usb_serial_jtag_read_bytes(void *data, uint32_t size, TickType_t wait) {
    return take(data, size, wait);
}

int usb_serial_jtag_write_bytes(const void *data, size_t size, TickType_t wait) {
    (void)wait;
    return give(data, size);
}

/// Start ///

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    panic_info_t panic = {context};
    __wrap_esp_panic_handler(&panic);
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(number, &action, NULL);
}

int main(void) {
    static char signal_stack[SIGNAL_STACK_BYTES];
    const stack_t alternative = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    sigaltstack(&alternative, NULL);
    handle(SIGALRM, on_alarm);
    handle(SIGSEGV, on_fault);
    handle(SIGILL, on_fault);
    handle(SIGFPE, on_fault);
    signal(SIGPIPE, SIG_IGN);
    set_alarm(); // that of the program before a restart
    open_ram();
    app_main();
    return 0;
}
