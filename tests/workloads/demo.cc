// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What `make demo` profiles: a small server without a network. It has a cache that grows, a leak,
// and a lot of allocations that live for one request only. Usage: demo [SECONDS].
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

#define NOINLINE __attribute__((noinline))

namespace
{

using Clock = std::chrono::steady_clock;
using Headers = std::vector<std::pair<std::string, std::string>>;

struct RequestContext {
	unsigned long id;
	char trace[2000];
};

class Cache
{
      public:
	NOINLINE void insert(unsigned long key, const std::string &body)
	{
		entries_[key] = std::make_unique<std::string>(body);
	}

	NOINLINE const std::string *lookup(unsigned long key) const
	{
		auto entry = entries_.find(key);
		return entry == entries_.end() ? nullptr : entry->second.get();
	}

	std::size_t size() const
	{
		return entries_.size();
	}

      private:
	std::unordered_map<unsigned long, std::unique_ptr<std::string>> entries_;
};

NOINLINE Headers parse_headers(unsigned long id)
{
	Headers headers;

	for (int i = 0; i < 8; i++)
		headers.emplace_back("X-Header-With-A-Long-Name-" + std::to_string(i),
				     "a value that does not fit a short string " +
					     std::to_string(id));
	return headers;
}

NOINLINE std::string render_body(const Headers &headers)
{
	std::string body;

	for (const auto &header : headers)
		body += header.first + ": " + header.second + "\r\n";
	body.resize(8000, '.');
	return body;
}

// The pointer goes to a log that forgets it.
NOINLINE void leak_request_context(unsigned long id)
{
	auto *context = new RequestContext{id, {}};

	__asm__ volatile("" : : "r"(context) : "memory");
}

NOINLINE void handle_request(Cache &cache, unsigned long id)
{
	unsigned long key = id % 3 ? id % 512 : id;
	Headers headers = parse_headers(id);

	if (!cache.lookup(key))
		cache.insert(key, render_body(headers));
	if (id % 10 == 0)
		leak_request_context(id);
}

} // namespace

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? std::atof(argv[1]) : 5;
	auto end = Clock::now() + std::chrono::duration<double>(seconds);
	Cache cache;
	unsigned long id = 0;

	std::printf("demo: serving requests for %g seconds\n", seconds);
	std::fflush(stdout);
	while (Clock::now() < end) {
		for (int i = 0; i < 20; i++)
			handle_request(cache, id++);
		std::this_thread::sleep_for(std::chrono::milliseconds(5));
	}
	std::printf("demo: %lu requests, %zu cache entries\n", id, cache.size());
	std::fflush(stdout);
	// As a service that is killed: nothing is tidied up, the last snapshot shows it at work.
	_exit(0);
}
