/* The least an MCP server over stdio can do for a command: read a line, start the program, answer.
 *
 *     floor                      starts programs with posix_spawn
 *     floor --sandbox WORKSPACE  forks; the child gets its own session, resource limits, no_new_privs,
 *                                Landlock and a seccomp filter before it executes
 *
 * One tool, `run`, with {"argv": ["/absolute/program", ...]}. No policy, no record, no user of its own,
 * no namespaces, no deadline: a yardstick, not a server to use. One thread, one poll loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { JOBS_MAX = 64, ARGS_MAX = 32, ID_MAX = 64, LINE_MAX_BYTES = 1 << 16, STREAM_MAX = 1 << 15 };

struct stream {
    int fd; /* -1 once the other end is closed */
    size_t length;
    char bytes[STREAM_MAX];
};

struct job {
    pid_t pid; /* 0: free */
    char id[ID_MAX];
    struct stream out, err;
};

static struct job jobs[JOBS_MAX];
static int jobs_running;
static bool sandboxed;
static int ruleset = -1;
static struct sock_fprog filter;

static void sandbox_prepare(const char *workspace);
static bool sandbox_enter(void);
static void take_input(void);
static void take_lines(void);
static void take_output(struct job *job, struct stream *stream);

static void die(const char *what)
{
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--sandbox") == 0)
        sandbox_prepare(argv[2]);
    else if (argc != 1) {
        fprintf(stderr, "usage: floor [--sandbox WORKSPACE]\n");
        return 2;
    }
    for (;;) {
        struct pollfd polled[1 + 2 * JOBS_MAX];
        struct job *owner[1 + 2 * JOBS_MAX];
        struct stream *source[1 + 2 * JOBS_MAX];
        nfds_t count = 1;
        polled[0] = (struct pollfd){.fd = jobs_running < JOBS_MAX ? 0 : -1, .events = POLLIN};
        for (struct job *job = jobs; job < jobs + JOBS_MAX; job++) {
            struct stream *streams[] = {&job->out, &job->err};
            for (int i = 0; job->pid && i < 2; i++) {
                if (streams[i]->fd < 0)
                    continue;
                polled[count] = (struct pollfd){.fd = streams[i]->fd, .events = POLLIN};
                owner[count] = job;
                source[count++] = streams[i];
            }
        }
        if (poll(polled, count, -1) < 0)
            die("poll");
        for (nfds_t i = 1; i < count; i++)
            if (polled[i].revents)
                take_output(owner[i], source[i]);
        if (polled[0].revents)
            take_input();
        take_lines();
    }
}

/* ---- JSON, as much as is needed ------------------------------------------------------------------ */

static const char *blank(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')
        at++;
    return at;
}

/* Past the closing quote; NULL when there is none. */
static const char *past_string(const char *at)
{
    for (at++; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

/* Past any value; NULL when the text ends within it. */
static const char *past_value(const char *at)
{
    int depth = 0;
    for (at = blank(at); *at;) {
        if (*at == '"') {
            if (!(at = past_string(at)))
                return NULL;
            if (depth == 0)
                return at;
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']') {
            if (depth == 0)
                return at; /* the end of what holds a bare number or word */
            if (--depth == 0)
                return at + 1;
        } else if (*at == ',' && depth == 0)
            return at;
        at++;
    }
    return depth == 0 ? at : NULL;
}

/* The value of a member of the object at `at`, or NULL. Names with escapes are not looked for. */
static const char *member(const char *at, const char *name)
{
    size_t length = strlen(name);
    at = at ? blank(at) : "";
    if (*at++ != '{')
        return NULL;
    for (;;) {
        at = blank(at);
        const char *key = at;
        if (*at != '"' || !(at = past_string(at)))
            return NULL;
        bool found = (size_t)(at - key) == length + 2 && memcmp(key + 1, name, length) == 0;
        at = blank(at);
        if (*at++ != ':')
            return NULL;
        if (found)
            return blank(at);
        if (!(at = past_value(at)))
            return NULL;
        at = blank(at);
        if (*at++ != ',')
            return NULL;
    }
}

static bool is_string(const char *at, const char *text)
{
    size_t length = strlen(text);
    return at && *at == '"' && strncmp(at + 1, text, length) == 0 && at[1 + length] == '"';
}

/* Decodes a string into `to`, which is as long as the text it came from. Past it, or NULL. */
static const char *decode(const char *at, char *to)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (*at != '"')
        return NULL;
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\') {
            const char *escape = *++at ? strchr(escapes, *at) : NULL;
            if (!escape)
                return NULL; /* \u is not needed by the driver */
            *to++ = meant[escape - escapes];
        } else
            *to++ = *at;
    }
    *to = 0;
    return *at ? at + 1 : NULL;
}

/* The strings of the array at `at` as a vector that `exec` takes; their bytes go to `space`. */
static bool strings(const char *at, char **vector, char *space)
{
    int count = 0;
    if (!at || *at != '[')
        return false;
    for (at = blank(at + 1); *at != ']'; at = blank(at)) {
        vector[count] = space;
        if (count + 1 >= ARGS_MAX || !(at = decode(at, space)))
            return false;
        space += strlen(space) + 1;
        count++;
        at = blank(at);
        if (*at == ',')
            at = blank(at + 1);
        else if (*at != ']')
            return false;
    }
    vector[count] = NULL;
    return count > 0;
}

/* ---- answers ------------------------------------------------------------------------------------- */

static char answer[4 * STREAM_MAX * 2 + 1024];
static size_t answer_length;

static void put(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    answer_length += vsnprintf(answer + answer_length, sizeof answer - answer_length, format, values);
    va_end(values);
}

static void put_text(const struct stream *stream)
{
    for (size_t i = 0; i < stream->length; i++) {
        unsigned char byte = stream->bytes[i];
        if (byte == '"' || byte == '\\')
            answer[answer_length++] = '\\', answer[answer_length++] = byte;
        else if (byte == '\n')
            answer[answer_length++] = '\\', answer[answer_length++] = 'n';
        else
            answer[answer_length++] = byte < 32 || byte > 126 ? '?' : byte;
    }
}

static void send_answer(void)
{
    put("\n");
    for (size_t sent = 0; sent < answer_length;) {
        ssize_t count = write(1, answer + sent, answer_length - sent);
        if (count < 0)
            die("write");
        sent += count;
    }
    answer_length = 0;
}

static void reply(const char *id, const char *result)
{
    put("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", id, result);
    send_answer();
}

static void refuse(const char *id, int code, const char *message)
{
    put("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":\"%s\"}}", id, code, message);
    send_answer();
}

/* ---- commands ------------------------------------------------------------------------------------ */

static char *child_environment[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL};

static pid_t start_sandboxed(char **vector, int null, int out, int err)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || !sandbox_enter())
        _exit(126);
    execve(vector[0], vector, child_environment);
    _exit(127);
}

static pid_t start_bare(char **vector, int null, int out, int err)
{
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, err, 2);
    int failed = posix_spawn(&pid, vector[0], &actions, NULL, vector, child_environment);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : pid;
}

static void start(const char *id, char **vector)
{
    static int null = -1;
    int out[2], err[2];
    struct job *job = jobs;
    while (job->pid)
        job++;
    if (null < 0 && (null = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        die("/dev/null");
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        die("pipe");
    pid_t pid = (sandboxed ? start_sandboxed : start_bare)(vector, null, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    if (pid < 0) {
        close(out[0]);
        close(err[0]);
        refuse(id, -32603, "cannot start it");
        return;
    }
    job->pid = pid;
    job->out.fd = out[0];
    job->err.fd = err[0];
    job->out.length = job->err.length = 0;
    strcpy(job->id, id);
    jobs_running++;
}

static void finish(struct job *job)
{
    int status;
    if (waitpid(job->pid, &status, 0) < 0)
        die("waitpid");
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    put("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"", job->id);
    put_text(&job->out);
    put("\"}],\"structuredContent\":{\"exit_code\":%d,\"stdout\":\"", code);
    put_text(&job->out);
    put("\",\"stderr\":\"");
    put_text(&job->err);
    put("\"},\"isError\":%s}}", code ? "true" : "false");
    send_answer();
    job->pid = 0;
    jobs_running--;
}

static void take_output(struct job *job, struct stream *stream)
{
    char beyond[4096]; /* read and dropped, so that a talkative program ends */
    size_t room = STREAM_MAX - stream->length;
    ssize_t count = room ? read(stream->fd, stream->bytes + stream->length, room) : read(stream->fd, beyond, sizeof beyond);
    if (count < 0)
        die("read");
    if (count > 0) {
        stream->length += room ? count : 0;
        return;
    }
    close(stream->fd);
    stream->fd = -1;
    if (job->out.fd < 0 && job->err.fd < 0)
        finish(job);
}

static void take_line(const char *line)
{
    static char space[LINE_MAX_BYTES];
    char id[ID_MAX], *vector[ARGS_MAX];
    const char *value = member(line, "id"), *method = member(line, "method");
    const char *end = value ? past_value(value) : NULL;
    if (!end || end - value >= ID_MAX)
        return; /* a notification */
    snprintf(id, sizeof id, "%.*s", (int)(end - value), value);
    if (is_string(method, "initialize"))
        reply(id, "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
                  "\"serverInfo\":{\"name\":\"floor\",\"version\":\"1\"}}");
    else if (is_string(method, "tools/list"))
        reply(id, "{\"tools\":[{\"name\":\"run\",\"inputSchema\":{\"type\":\"object\",\"required\":[\"argv\"],"
                  "\"properties\":{\"argv\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}}]}");
    else if (is_string(method, "ping"))
        reply(id, "{}");
    else if (is_string(method, "tools/call")) {
        const char *params = member(line, "params");
        if (is_string(member(params, "name"), "run") && strings(member(member(params, "arguments"), "argv"), vector, space))
            start(id, vector);
        else
            refuse(id, -32602, "run needs argv");
    } else
        refuse(id, -32601, "no such method");
}

static char input[LINE_MAX_BYTES];
static size_t input_length;

static void take_input(void)
{
    ssize_t count = read(0, input + input_length, sizeof input - 1 - input_length);
    if (count <= 0)
        exit(0);
    input_length += count;
}

/* Whole lines, as long as there is room for what they start. */
static void take_lines(void)
{
    char *line = input, *end;
    while (jobs_running < JOBS_MAX && (end = memchr(line, '\n', input + input_length - line))) {
        *end = 0;
        take_line(line);
        line = end + 1;
    }
    input_length -= line - input;
    memmove(input, line, input_length);
}

/* ---- confinement --------------------------------------------------------------------------------- */

static void allow_beneath(const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    if (rule.parent_fd < 0)
        return; /* not every system has every folder */
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
        die("landlock_add_rule");
    close(rule.parent_fd);
}

/* What a command has no business with; about as many as a real deny list has. */
static const int refused[] = {
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_chroot, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
    SYS_fspick, SYS_unshare, SYS_setns, SYS_init_module, SYS_finit_module, SYS_delete_module,
    SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_sethostname, SYS_setdomainname, SYS_acct, SYS_quotactl, SYS_keyctl, SYS_add_key, SYS_request_key,
    SYS_open_by_handle_at, SYS_memfd_create, SYS_socket,
};

static void filter_prepare(void)
{
    enum { COUNT = sizeof refused / sizeof *refused };
    static struct sock_filter program[COUNT + 6];
#if defined(__x86_64__)
    const uint32_t machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
    const uint32_t machine = AUDIT_ARCH_AARCH64;
#else
#error "the filter is written for x86_64 and aarch64"
#endif
    int at = 0;
    program[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, machine, 1, 0);
    program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) /* a hit jumps over the rest and the ALLOW */
        program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], COUNT - i, 0);
    program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    filter = (struct sock_fprog){.len = at, .filter = program};
}

/* Ruleset and filter are made once; a child only puts them on. */
static void sandbox_prepare(const char *workspace)
{
    const uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1; /* what the first ABI knows */
    const uint64_t look = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    static const char *system[] = {"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"};
    struct landlock_ruleset_attr handled = {.handled_access_fs = all};
    ruleset = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled.handled_access_fs, 0);
    if (ruleset < 0)
        die("landlock_create_ruleset");
    if (fcntl(ruleset, F_SETFD, FD_CLOEXEC))
        die("fcntl");
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        allow_beneath(system[i], look | LANDLOCK_ACCESS_FS_EXECUTE);
    allow_beneath("/dev", look | LANDLOCK_ACCESS_FS_WRITE_FILE);
    allow_beneath("/proc", look);
    allow_beneath(workspace, all);
    filter_prepare();
    sandboxed = true;
}

static bool limit(int what, rlim_t most)
{
    return setrlimit(what, &(struct rlimit){.rlim_cur = most, .rlim_max = most}) == 0;
}

static bool sandbox_enter(void)
{
    return setsid() >= 0
        && limit(RLIMIT_AS, 1UL << 30)
        && limit(RLIMIT_CPU, 60)
        && limit(RLIMIT_FSIZE, 1UL << 30)
        && limit(RLIMIT_NOFILE, 256)
        && limit(RLIMIT_CORE, 0)
        && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        && syscall(SYS_landlock_restrict_self, ruleset, 0) == 0
        && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}
