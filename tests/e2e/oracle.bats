#!/usr/bin/env bats
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The walker against libdwfl, stack by stack, in real programs that do real work.

load helpers

LIVE=$BUILD/oracle/live
PORT=$((20000 + $$ % 10000))

setup_file() {
	export TOTALS=$BATS_FILE_TMPDIR/totals
	: >"$TOTALS"
}

need() {
	local program
	for program in "$@"; do
		command -v "$program" >program || skip "needs $program"
	done
}

# watch PID EVERY [STACKS]: the judge in the background. Work may begin.
watch() {
	spawn live "$LIVE" -n "${3:-1500}" -e "$2" -t 60 "$1"
	JUDGE=$PID
	wait_for_line live.err '^attached$'
}

# value NAME: of the judge's last line.
value() {
	sed -nE "s/^stacks=.*/ & /; s/.* $1=([0-9]+) .*/\1/p" live.out
}

# verdict [LEAST [PER_MILLE]]: no stack differs, 99.9 % are complete; what passes through generated
# code is apart.
verdict() {
	poll 90 is_gone "$JUDGE"
	wait "$JUDGE" || {
		head -n 200 live.out
		return 1
	}
	echo "# $BATS_TEST_DESCRIPTION: $(tail -n 1 live.out)" >&3
	cat live.out
	tail -n 1 live.out >>"$TOTALS"
	[ "$(value differing)" -eq 0 ]
	[ "$(value lost)" -eq 0 ]
	[ "$(value stacks)" -ge "${1:-1000}" ]
	[ $((1000 * ($(value complete) - $(value jit_complete)))) -ge \
		$((${2:-999} * ($(value stacks) - $(value jit)))) ]
}

# until_judged COMMAND...: again and again until the judge has enough.
until_judged() {
	until is_gone "$JUDGE"; do
		"$@" || return 1
	done
}

@test "python3" {
	cat >work.py <<-'END'
		import json, re, sqlite3, sys, zlib, hashlib, xml.etree.ElementTree as tree
		from concurrent.futures import ThreadPoolExecutor

		def work(n):
		    data = [{"k%d" % i: list(range(i % 50)), "s": "x" * (i % 700)} for i in range(n)]
		    text = json.dumps(data)
		    data = sorted(json.loads(text), key=lambda entry: len(entry["s"]))
		    re.compile("(a|b)*c%d[%d-9]{2,}" % (n % 1000, n % 8)).findall(text)
		    base = sqlite3.connect(":memory:")
		    base.execute("create table t (a, b)")
		    base.executemany("insert into t values (?, ?)", [(i, str(i)) for i in range(n)])
		    base.execute("select b, count(*) from t group by b order by 2, 1").fetchall()
		    base.close()
		    hashlib.sha256(zlib.decompress(zlib.compress(text.encode()))).hexdigest()
		    node = tree.fromstring("<a>" + "<b c='1'>text</b>" * n + "</a>")
		    eval("lambda x%d: [x%d + i for i in range(9)]" % (n, n))

		print("working", flush=True)
		with ThreadPoolExecutor(2) as pool:
		    while True:
		        list(pool.map(work, range(10, 200, 20)))
	END
	spawn python /usr/bin/python3 work.py
	target=$PID
	wait_for_line python.out working
	watch "$target" 100
	verdict
}

@test "perl" {
	need perl
	cat >work.pl <<-'END'
		use Data::Dumper;
		use List::Util qw(sum reduce);
		$| = 1;
		print "working\n";
		my $n = 0;
		while (1) {
			$n = ($n + 7) % 500;
			my %hash = map { ("key$_" => [1 .. $_ % 20]) } 1 .. $n;
			my @sorted = sort { @{$hash{$a}} <=> @{$hash{$b}} || $a cmp $b } keys %hash;
			my $text = Dumper(\%hash);
			my @words = $text =~ /(\w+)\s*=>\s*(\[[^\]]*\])/g;
			(my $copy = $text) =~ s/(\d+)/sprintf("%x", $1)/ge;
			my $sum = reduce { $a + $b } map { length } @words, split(/,/, $copy);
			eval "sub f$n { my \$x = shift; return \$x . '$n' } f$n(1)";
			sprintf("%-80s|%s", join(",", @sorted), pack("w*", 1 .. $n));
		}
	END
	spawn perl perl work.pl
	target=$PID
	wait_for_line perl.out working
	watch "$target" 50
	verdict
}

@test "bash" {
	cat >work.bash <<-'END'
		echo working
		trap ':' USR1
		fib() {
			local n=$1 a b
			((n < 2)) && { result=$n; return; }
			fib $((n - 1)); a=$result
			fib $((n - 2)); b=$result
			result=$((a + b))
		}
		while :; do
			fib 8
			declare -A map=()
			for word in {a..z}{1..5}; do
				map[$word]=${word//[0-9]/x}${map[${word}_]:-none}
			done
			text="${map[*]}"
			[[ $text =~ (a+x|b.)[cd]* ]] && array=("${BASH_REMATCH[@]}" ${text// /,})
			case $text in *zz*) : ;; *[!a]*) printf -v line '%s-%5d' "${array[0]}" $result ;; esac
			kill -USR1 $$
			eval "f_$result() { echo $result; }; unset -f f_$result"
			read -r one two <<< "$line $text"
		done
	END
	spawn bash bash work.bash
	target=$PID
	wait_for_line bash.out working
	watch "$target" 50
	verdict
}

@test "openssl" {
	need openssl
	spawn openssl openssl speed -seconds 60 ecdsap384 rsa2048
	target=$PID
	wait_for_line openssl.err '^Doing'
	watch "$target" 10 1000
	verdict
}

@test "openssl as a server" {
	need openssl curl
	openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=localhost \
		2>req.err
	spawn server openssl s_server -accept "127.0.0.1:$PORT" -key key.pem -cert cert.pem -www
	target=$PID
	wait_for_line server.out '^ACCEPT'
	watch "$target" 10
	until_judged curl -sk --max-time 10 "https://127.0.0.1:$PORT/" -o page
	verdict
}

@test "node" {
	need node
	cat >work.js <<-'END'
		const zlib = require('zlib'), crypto = require('crypto'), vm = require('vm'), fs = require('fs');
		console.log('working');
		function work(n) {
			const data = Array.from({length: n % 97}, (_, i) => ({i, s: 'x'.repeat(i), r: Math.random()}));
			const text = JSON.stringify(data);
			zlib.gunzipSync(zlib.gzipSync(text));
			crypto.createHash('sha256').update(text).digest('hex');
			new RegExp('(a|b)*c' + n % 1000).test(text);
			JSON.parse(text).sort((a, b) => a.r - b.r).map((e) => Buffer.from(e.s)).reduce((a, b) => a + b.length, 0);
			if (n % 50 == 0) vm.runInNewContext('x = ' + n + '; function f() { return x * 2 } f()');
			fs.readFileSync('/etc/passwd', 'utf8').split(':').length;
			setImmediate(work, n + 1);
		}
		work(1);
	END
	spawn node node work.js
	target=$PID
	wait_for_line node.out working
	watch "$target" 20 2000
	# V8's own assembly has no tables either: few stacks go without generated code here, and those
	# that are cut count as such.
	verdict 1000 0
	[ $((100 * $(value complete))) -ge $((99 * $(value stacks))) ]
}

@test "clang" {
	need clang-14 clang++-14
	mkfifo source
	clang++-14 -std=gnu++17 -E -P "$E2E/../workloads/torture.cc" -o clang.ii
	# The compiler itself: the driver may start it as another process.
	spawn clang clang-14 -cc1 -triple x86_64-pc-linux-gnu -x c++-cpp-output -std=gnu++17 -fexceptions \
		-fcxx-exceptions -O2 -emit-obj -o clang.o source
	target=$PID
	poll "$PATIENCE" grep -q libLLVM "/proc/$target/maps"
	watch "$target" 100 2000
	cat clang.ii >source
	verdict
}

@test "redis" {
	need redis-server redis-benchmark
	spawn redis redis-server --port "$PORT" --bind 127.0.0.1 --save '' --appendonly no --dir .
	target=$PID
	wait_for_line redis.out 'Ready to accept connections'
	watch "$target" 100
	until_judged redis-benchmark -h 127.0.0.1 -p "$PORT" -n 2000 -r 100000 -q \
		-t set,get,incr,lpush,rpush,lpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset >redis.bench
	verdict
}

@test "postgres" {
	need /usr/lib/postgresql/15/bin/postgres psql setpriv
	bin=/usr/lib/postgresql/15/bin
	chmod 755 "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR" "$BATS_TEST_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
	mkdir data
	chown postgres data
	as_postgres() {
		setpriv --reuid=postgres --regid=postgres --clear-groups env HOME="$PWD/data" "$@"
	}
	(cd data && as_postgres $bin/initdb -D base -A trust --no-sync) >initdb.out
	spawn postgres setpriv --reuid=postgres --regid=postgres --clear-groups \
		$bin/postgres -D "$PWD/data/base" -k "$PWD/data" -c listen_addresses= -c fsync=off
	server=$PID
	wait_for_line postgres.err 'ready to accept connections'
	spawn psql as_postgres psql -h "$PWD/data" -At postgres
	tell psql "select 'backend ' || pg_backend_pid();"
	wait_for_line psql.out '^backend'
	target=$(sed -n 's/^backend //p' psql.out)
	# A library that comes later is a cut stack until its table is there.
	tell psql "load 'plpgsql'; select 'loaded';"
	wait_for_line psql.out '^loaded'
	watch "$target" 1
	tell psql "create table t (a int primary key, b text, c jsonb);"
	for ((i = 0; i < 300; i++)); do
		cat <<-END
			insert into t select $i * 1000 + g, md5(g::text), jsonb_build_object('k', g, 'l', array[g, g + 1])
			 from generate_series(1, 300) g;
			with recursive r(n) as (select 1 union all select n + 1 from r where n < 50)
			 select count(*), max(b), avg((c->>'k')::int) from t join r on t.a % 50 = r.n group by r.n order by 3 limit 3;
			create function f$i(x int) returns int language plpgsql as
			 \$\$ begin return (select count(*) from t where a < x); end \$\$;
			select f$i($i), regexp_replace(b, '[a-f]+', 'x', 'g') from t order by b desc limit 1;
			create index on t ((b || '$i'));
			prepare p$i as select * from t where b like \$1 and a between 5 and 50;
			execute p$i('a%');
		END
	done >work.sql
	cat work.sql >&"$FD_psql" &
	feeder=$!
	STARTED+=($feeder)
	poll 90 is_gone "$JUDGE"
	kill $feeder || true
	verdict 500
}

@test "nginx" {
	need nginx curl
	mkdir -p logs html
	head -c 100000 /dev/urandom >html/large
	echo "<!--#echo var='date_local' --> text" >html/index.html
	cat >nginx.conf <<-END
		daemon off;
		worker_processes 1;
		user root;
		error_log stderr;
		pid $PWD/nginx.pid;
		events {}
		http {
			access_log $PWD/logs/access.log;
			client_body_temp_path $PWD/body;
			proxy_temp_path $PWD/proxy;
			fastcgi_temp_path $PWD/fastcgi;
			uwsgi_temp_path $PWD/uwsgi;
			scgi_temp_path $PWD/scgi;
			server {
				listen 127.0.0.1:$PORT;
				root $PWD/html;
				gzip on;
				gzip_types *;
				location / { ssi on; autoindex on; }
				location /proxied/ { proxy_pass http://127.0.0.1:$PORT/; }
				location ~ ^/again(.*)\$ { rewrite ^ /index.html; }
			}
		}
	END
	spawn nginx nginx -p "$PWD" -c "$PWD/nginx.conf"
	server=$PID
	poll "$PATIENCE" pgrep -P "$server" >worker
	target=$(cat worker)
	STARTED+=("$target")
	watch "$target" 1
	until_judged curl -s --max-time 10 --compressed -o page "http://127.0.0.1:$PORT/" -o page \
		"http://127.0.0.1:$PORT/proxied/large" -o page "http://127.0.0.1:$PORT/again" -o page \
		"http://127.0.0.1:$PORT/none" -o page "http://127.0.0.1:$PORT/proxied/index.html?x=[1-20]"
	kill "$server"
	verdict
}

@test "sqlite3" {
	need sqlite3
	spawn sqlite sqlite3 base.db
	target=$PID
	tell sqlite "select 'working';"
	wait_for_line sqlite.out working
	watch "$target" 20
	for ((i = 0; i < 200; i++)); do
		cat <<-END
			create table t$i (a integer primary key, b text, c real);
			insert into t$i with recursive r(n) as (select 1 union all select n + 1 from r where n < 200)
			 select n, hex(randomblob(20)), random() from r;
			create index i$i on t$i (b, c);
			select count(*), group_concat(substr(x.b, 1, 3)), json_group_array(y.c) from t$i x join t$i y
			 on x.a = y.a + 1 where x.b like 'A%' group by x.a % 7 order by 1 limit 1;
			with w as (select a, sum(c) over (partition by a % 5 order by b) s from t$i) select max(s) from w;
			update t$i set b = printf('%s-%d', b, a) where a % 3 = 0;
			drop table t$i;
		END
	done >work.sql
	cat work.sql >&"$FD_sqlite" &
	feeder=$!
	STARTED+=($feeder)
	poll 90 is_gone "$JUDGE"
	kill $feeder || true
	verdict
}

@test "10,000 stacks were compared" {
	awk '{ sub(/stacks=/, ""); sum += $1 } END { print "# " sum " stacks" >"/dev/fd/3"; exit sum < 10000 }' "$TOTALS"
}
