/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stacks that are hard to unwind, each with what the program itself knows of it: glibc's
 * backtrace(), taken by the very call instruction that then calls malloc.
 *
 * Usage: torture ROUNDS [LIBRARY]. Prints a line per case, `NAME BYTES FRAME;FRAME;...`, leaf
 * first. BYTES is the size asked for, one per name; a frame is `FILE+0xOFFSET` of the call's last
 * byte, or of the instruction itself where a signal interrupted.
 *
 * What a profiler may have to learn of before it can follow, a library loaded and code interrupted
 * between calls, comes as NAME_early first, the latter ROUNDS times, and again at the end.
 */
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <functional>
#include <pthread.h>
#include <sys/time.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

namespace
{

/* A size nobody else asks for: each name adds one. */
const size_t first_bytes = 30011;
const int max_cases = 2048;
const int max_frames = 300;
const int late_rounds = 10;

struct taken {
	const char *name;
	size_t bytes;
	int count;
	void *frames[max_frames];
	void *interrupted; /* of the frames, the one that is no call */
};

struct taken cases[max_cases];
int case_count;
/* Set by the signal handlers. */
void *interrupted_at;

/* What the compiler knows nothing about. */
template <typename T> inline __attribute__((always_inline)) T opaque(T value)
{
	__asm__ volatile("" : "+r"(value) : : "memory");
	return value;
}

/* backtrace(frames, count) and malloc(bytes), as the calling convention sees both. */
typedef uintptr_t (*either)(uintptr_t first, uintptr_t second);

NOINLINE void take(const char *name)
{
	struct taken *taken = &cases[case_count];
	const bool repeated = case_count && !strcmp(taken[-1].name, name);
	const size_t bytes = case_count ? taken[-1].bytes + !repeated : first_bytes;
	either call[2] = {
		reinterpret_cast<either>(reinterpret_cast<void *>(backtrace)),
		reinterpret_cast<either>(reinterpret_cast<void *>(malloc)),
	};
	uintptr_t first[2] = {reinterpret_cast<uintptr_t>(taken->frames), bytes};
	uintptr_t result[2];
	uintptr_t *in = opaque(first), *out = opaque(result);
	either *function = opaque(call);
	const int calls = opaque(2);

	if (case_count == max_cases)
		abort();
	case_count++;
	taken->name = name;
	taken->bytes = bytes;
	taken->interrupted = interrupted_at;
#ifdef __clang__
#pragma clang loop unroll(disable)
#else
#pragma GCC unroll 1
#endif
	for (int i = 0; i < calls; i++)
		out[i] = function[i](in[i], max_frames);
	taken->count = static_cast<int>(out[0]);
	free(reinterpret_cast<void *>(out[1]));
}

NOINLINE int recurse(int levels, const char *name)
{
	int result;

	if (levels <= 1)
		take(name);
	result = levels > 1 ? recurse(levels - 1, name) : 0;
	return opaque(result) + 1;
}

NOINLINE void with_alloca(size_t size)
{
	char *memory = static_cast<char *>(alloca(size));

	opaque(memory)[0] = 1;
	recurse(2, "alloca");
	opaque(memory)[size - 1] = 1;
}

/* No frame of its own but a pushed argument area. */
NOINLINE int many_arguments(int a, int b, int c, int d, int e, int f, long g, long h, long i)
{
	take("arguments");
	return opaque(a + b + c + d + e + f) + static_cast<int>(opaque(g + h + i));
}

NOINLINE __attribute__((force_align_arg_pointer)) int realigned(int a, long b)
{
	take("realigned");
	return opaque(a) + static_cast<int>(opaque(b));
}

/* Over-aligned locals, arguments on the stack and alloca: gcc keeps a pointer to the arguments. */
NOINLINE __attribute__((force_align_arg_pointer)) int overaligned(int a, int b, int c, int d, int e,
								  int f, long g, long h)
{
	alignas(64) char aligned[64];
	char *memory = static_cast<char *>(alloca(static_cast<size_t>(opaque(a)) * 16));

	opaque(memory)[0] = 1;
	opaque(static_cast<char *>(aligned))[0] = 1;
	recurse(3, "overaligned");
	opaque(static_cast<char *>(aligned))[1] = 1;
	return opaque(a + b + c + d + e + f) + static_cast<int>(opaque(g + h)) + aligned[0];
}

NOINLINE int overaligned_plain(int a)
{
	alignas(128) char aligned[128];

	opaque(static_cast<char *>(aligned))[0] = 1;
	take("overaligned_plain");
	return opaque(static_cast<char *>(aligned))[0] + opaque(a);
}

NOINLINE int large_frame(int a)
{
	char memory[70 * 1024];

	opaque(static_cast<char *>(memory))[a] = 1;
	take("large_frame");
	return opaque(static_cast<char *>(memory))[a];
}

jmp_buf back;

__attribute__((noreturn)) NOINLINE void take_and_jump()
{
	take("noreturn_jump");
	longjmp(back, 1);
}

/* Ends with the call: the return address belongs to whatever the linker put behind. */
__attribute__((noreturn)) NOINLINE void tail_jump(long a)
{
	char memory[200];

	opaque(static_cast<char *>(memory))[a] = 1;
	take_and_jump();
}

__attribute__((noreturn)) NOINLINE void take_and_exit()
{
	take("noreturn_exit");
	pthread_exit(nullptr);
}

__attribute__((noreturn)) NOINLINE void tail_exit(long a)
{
	char memory[3000];

	opaque(static_cast<char *>(memory))[a] = 1;
	take_and_exit();
}

void *exiting_thread(void *)
{
	tail_exit(opaque(7));
}

void *plain_thread(void *name)
{
	recurse(4, static_cast<const char *>(name));
	return nullptr;
}

void run_thread(void *(*function)(void *), const char *name)
{
	pthread_t thread;

	if (pthread_create(&thread, nullptr, function, const_cast<char *>(name)))
		abort();
	pthread_join(thread, nullptr);
}

bool compared;

int compare(const void *a, const void *b)
{
	if (!compared)
		take("qsort");
	compared = true;
	return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

void sort()
{
	int values[] = {3, 1, 2};

	qsort(opaque(static_cast<int *>(values)), 3, sizeof(*values), compare);
}

NOINLINE int call_function(const std::function<int(int)> &function, int value)
{
	return function(value) + 1;
}

void lambdas()
{
	int captured = opaque(5);
	auto inner = [&captured](int value) {
		take("lambda");
		return value + captured;
	};

	opaque(call_function([&inner](int value) { return inner(value) * 2; }, 3));
}

struct base {
	virtual ~base() = default;
	virtual int work(int value) = 0;
};

struct derived : base {
	std::function<void()> last;
	~derived() override
	{
		last();
	}
	int work(int value) override
	{
		take("virtual");
		return value + 1;
	}
};

void objects()
{
	derived object;
	base *pointer = opaque(static_cast<base *>(&object));

	object.last = [] { take("destructor"); };
	opaque(pointer->work(1));
}

#ifdef TORTURE_STATIC
void library(const char *, const char *)
{
	exit(3);
}
#else
void library(const char *path, const char *name)
{
	void *handle = dlopen(path, RTLD_NOW);
	int (*function)(void (*)(void *), void *) = nullptr;

	if (handle)
		function = reinterpret_cast<decltype(function)>(dlsym(handle, "torture_library"));
	if (!function) {
		fprintf(stderr, "torture: %s\n", dlerror());
		exit(3);
	}
	/* Stays loaded, so that its addresses can be named. */
	opaque(function([](void *name) { take(static_cast<const char *>(name)); },
			const_cast<char *>(name)));
}
#endif

volatile sig_atomic_t fired;
const char *signal_name;

void handler(int, siginfo_t *, void *context)
{
	const ucontext_t *at = static_cast<const ucontext_t *>(context);

	interrupted_at = reinterpret_cast<void *>(at->uc_mcontext.gregs[REG_RIP]);
	take(signal_name);
	interrupted_at = nullptr;
	fired = 1;
}

void install(int signal, int flags)
{
	struct sigaction action = {};

	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | flags;
	if (sigaction(signal, &action, nullptr))
		abort();
}

NOINLINE void raised(const char *name)
{
	signal_name = name;
	raise(SIGUSR1);
}

void fire_after_us(long us)
{
	struct itimerval timer = {};

	timer.it_value.tv_usec = us;
	if (setitimer(ITIMER_REAL, &timer, nullptr))
		abort();
}

NOINLINE unsigned long spin(unsigned long value)
{
	while (!fired)
		value = value * 6364136223846793005ul + 1;
	return value;
}

NOINLINE void busy(const char *name, long us)
{
	signal_name = name;
	fired = 0;
	fire_after_us(us);
	opaque(spin(opaque(1ul)));
}

/* A system call that the signal ends. */
NOINLINE void blocked()
{
	sigset_t alarm, before;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, &before);
	signal_name = "blocked";
	fire_after_us(2000);
	sigsuspend(&before);
}

void signals(int rounds)
{
	static char memory[1 << 16];
	stack_t stack = {};

	install(SIGUSR1, 0);
	raised("raise");
	stack.ss_sp = memory;
	stack.ss_size = sizeof(memory);
	if (sigaltstack(&stack, nullptr))
		abort();
	install(SIGUSR1, SA_ONSTACK);
	raised("raise_altstack");
	install(SIGALRM, SA_ONSTACK);
	for (int i = 0; i < rounds; i++)
		busy("busy_early", 300 + i % 50 * 20);
	for (int i = 0; i < late_rounds; i++)
		busy("busy", 300 + i * 50);
	blocked();
}

struct mapping {
	uintptr_t start, end, offset;
	char name[256];
};

struct mapping mappings[256];
int mapping_count;

void read_mappings()
{
	char line[1024];
	FILE *file = fopen("/proc/self/maps", "re");

	while (file && mapping_count < 256 && fgets(line, sizeof(line), file)) {
		struct mapping *mapping = &mappings[mapping_count];
		const char *slash = strrchr(line, '/');

		if (!slash || sscanf(line, "%lx-%lx %*s %lx", &mapping->start, &mapping->end,
				     &mapping->offset) != 3)
			continue;
		snprintf(mapping->name, sizeof(mapping->name), "%.*s",
			 static_cast<int>(strcspn(slash + 1, "\n")), slash + 1);
		mapping_count++;
	}
	if (file)
		fclose(file);
}

void print_frame(uintptr_t address)
{
	for (int i = 0; i < mapping_count; i++) {
		const struct mapping *mapping = &mappings[i];

		if (address >= mapping->start && address < mapping->end) {
			printf("%s+0x%lx", mapping->name,
			       address - mapping->start + mapping->offset);
			return;
		}
	}
	printf("0x%lx", address);
}

/* The last thing that happens: a case itself. */
void at_exit()
{
	take("atexit");
	read_mappings();
	for (int i = 0; i < case_count; i++) {
		const struct taken *taken = &cases[i];

		printf("%s %zu ", taken->name, taken->bytes);
		for (int j = 0; j < taken->count; j++) {
			if (j)
				putchar(';');
			print_frame(reinterpret_cast<uintptr_t>(taken->frames[j]) -
				    (taken->frames[j] != taken->interrupted));
		}
		putchar('\n');
	}
}

} // namespace

int main(int argc, char **argv)
{
	void *warm_up[4];

	if (argc < 2)
		return 2;
	/* The first backtrace() loads libgcc. */
	backtrace(static_cast<void **>(warm_up), 4);
	atexit(at_exit);
	recurse(opaque(5), "recursion_5");
	recurse(opaque(60), "recursion_60");
	recurse(opaque(200), "recursion_200");
	with_alloca(opaque(1000ul));
	opaque(many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9));
	opaque(realigned(opaque(1), 2));
	opaque(overaligned(opaque(1), 2, 3, 4, 5, 6, 7, 8));
	opaque(overaligned_plain(opaque(1)));
	opaque(large_frame(opaque(1000)));
	if (!setjmp(back))
		tail_jump(opaque(3));
	run_thread(exiting_thread, nullptr);
	run_thread(plain_thread, "thread");
	std::thread([] { recurse(3, "std_thread"); }).join();
	sort();
	lambdas();
	objects();
	if (argc > 2)
		library(argv[2], "library_early");
	signals(atoi(argv[1]));
	if (argc > 2)
		library(argv[2], "library");
	return 0;
}
