/* Sends one HTTP request over and over on kept connections and times the answers.
 *
 *     load PORT CONNECTIONS REQUESTS < template
 *
 * The template is a whole HTTP/1.1 request. A run of ten `@` in it becomes a number that no other request
 * has, of this run or of one before, so that a server which remembers request ids sees new ones. Answers must be 200 or
 * 202 and say their length, or be chunked. Prints one line of JSON.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 256, ANSWER_MAX = 1 << 18, TEMPLATE_MAX = 1 << 16, NUMBER_DIGITS = 10 };

struct connection {
    int fd;
    double sent_at;
    size_t length;
    char answer[ANSWER_MAX + 1];
};

static char template[TEMPLATE_MAX];
static size_t template_length;
static char *number_at;
static unsigned long next_number;

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "not understood");
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void send_request(struct connection *to)
{
    if (number_at) {
        char digits[24];
        snprintf(digits, sizeof digits, "%010lu", next_number++);
        memcpy(number_at, digits, NUMBER_DIGITS);
    }
    to->length = 0;
    to->sent_at = now();
    for (size_t sent = 0; sent < template_length;) {
        ssize_t count = write(to->fd, template + sent, template_length - sent);
        if (count <= 0)
            die("write");
        sent += count;
    }
}

/* Whether the answer is all there. */
static bool complete(struct connection *from)
{
    from->answer[from->length] = 0;
    char *body = strstr(from->answer, "\r\n\r\n");
    if (!body)
        return false;
    body += 4;
    if (strncmp(from->answer, "HTTP/1.1 200", 12) && strncmp(from->answer, "HTTP/1.1 202", 12)) {
        fprintf(stderr, "load: %.*s\n", (int)strcspn(from->answer, "\r"), from->answer);
        exit(1);
    }
    char *length = strcasestr(from->answer, "\r\ncontent-length:");
    if (length && length < body)
        return from->answer + from->length >= body + strtoul(length + 17, NULL, 10);
    char *chunked = strcasestr(from->answer, "\r\ntransfer-encoding: chunked");
    if (!chunked || chunked > body)
        die("an answer without a length");
    return from->length >= 5 && memcmp(from->answer + from->length - 5, "0\r\n\r\n", 5) == 0;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: load PORT CONNECTIONS REQUESTS < template\n");
        return 2;
    }
    int width = atoi(argv[2]);
    long wanted = atol(argv[3]), sent = 0, done = 0;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (width < 1 || width > CONNECTIONS_MAX || wanted < width)
        die("arguments");
    for (ssize_t count; (count = read(0, template + template_length, sizeof template - 1 - template_length)) > 0;)
        template_length += count;
    /* Microseconds: a run sends fewer requests than pass, so the next begins behind its last. */
    next_number = 1000000000 + (unsigned long)(now() * 1e6) % 8000000000UL;
    number_at = strstr(template, "@@@@@@@@@@");

    double *took = calloc(wanted, sizeof *took);
    struct connection *connections = calloc(width, sizeof *connections);
    struct pollfd polled[CONNECTIONS_MAX];
    if (!took || !connections)
        die("memory");
    for (int i = 0; i < width; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&place, sizeof place))
            die("connect");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        connections[i].fd = fd;
        polled[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    double start = now();
    for (int i = 0; i < width; i++, sent++)
        send_request(&connections[i]);
    while (done < wanted) {
        int ready = poll(polled, width, 10000);
        errno = ready == 0 ? ETIMEDOUT : errno;
        if (ready <= 0)
            die("poll");
        for (int i = 0; i < width; i++) {
            struct connection *one = &connections[i];
            if (!polled[i].revents)
                continue;
            ssize_t count = read(one->fd, one->answer + one->length, ANSWER_MAX - one->length);
            errno = count == 0 ? ECONNRESET : errno;
            if (count <= 0)
                die("read");
            one->length += count;
            if (!complete(one))
                continue;
            took[done++] = now() - one->sent_at;
            if (sent < wanted) {
                send_request(one);
                sent++;
            } else
                polled[i].fd = -1;
        }
    }
    double whole = now() - start;
    qsort(took, wanted, sizeof *took, compare);
    printf("{\"requests\": %ld, \"connections\": %d, \"per_s\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n", wanted, width,
           wanted / whole, took[wanted / 2] * 1e3, took[wanted * 99 / 100] * 1e3);
    return 0;
}
