# Loops that keep a processor busy, run both in a sandbox and by a native CPython. Each returns something that tells
# whether the same work was done.

import json
import re
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import combinations, permutations


def nbody(steps=30_000):
    """Floating-point arithmetic on attributes of lists."""
    days, solar_mass = 365.24, 4 * 3.141592653589793**2
    bodies = [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], solar_mass),
        (
            [4.84143144246472090, -1.16032004402742839, -0.103622044471123109],
            [0.00166007664274403694 * days, 0.00769901118419740425 * days, -0.0000690460016972063023 * days],
            0.000954791938424326609 * solar_mass,
        ),
        (
            [8.34336671824457987, 4.12479856412430479, -0.403523417114321381],
            [-0.00276742510726411042 * days, 0.00499852801234917238 * days, 0.0000230417297573763929 * days],
            0.000285885980666130812 * solar_mass,
        ),
        (
            [12.8943695621391310, -15.1111514016986312, -0.223307578892655734],
            [0.00296460137564761618 * days, 0.00237847173959480950 * days, -0.0000296589568540237556 * days],
            0.0000436624404335156298 * solar_mass,
        ),
        (
            [15.3796971148509165, -25.9193146099879641, 0.179258772950371181],
            [0.00268067772490389322 * days, 0.00162824170038242295 * days, -0.0000951592254519715870 * days],
            0.0000515138902046611451 * solar_mass,
        ),
    ]
    pairs = list(combinations(bodies, 2))
    for _ in range(steps):
        for (p1, v1, m1), (p2, v2, m2) in pairs:
            dx, dy, dz = p1[0] - p2[0], p1[1] - p2[1], p1[2] - p2[2]
            pull = 0.01 * (dx * dx + dy * dy + dz * dz) ** -1.5
            b1, b2 = m1 * pull, m2 * pull
            v1[0] -= dx * b2
            v1[1] -= dy * b2
            v1[2] -= dz * b2
            v2[0] += dx * b1
            v2[1] += dy * b1
            v2[2] += dz * b1
        for p, v, _m in bodies:
            p[0] += 0.01 * v[0]
            p[1] += 0.01 * v[1]
            p[2] += 0.01 * v[2]
    return round(sum(p[0] for p, _v, _m in bodies), 9)


def fannkuch(n=8, rounds=3):
    """Small integers, list indexing, slices."""
    best = 0
    for _ in range(rounds):
        permutation, count, best, r = list(range(n)), list(range(n)), 0, n
        while True:
            while r != 1:
                count[r - 1] = r
                r -= 1
            flips, turned = 0, permutation[:]
            while (k := turned[0]) != 0:
                turned[: k + 1] = turned[k::-1]
                flips += 1
            best = max(best, flips)
            while r != n:
                permutation.insert(r, permutation.pop(0))
                count[r] -= 1
                if count[r] > 0:
                    break
                r += 1
            if r == n:
                break
    return best


def json_text(rounds=1_500):
    """`dumps` and `loads` of a document of five kilobytes."""
    document = {
        "users": [
            {
                "id": n, "name": f"user {n}", "mail": f"user{n}@example.com", "score": n / 7, "active": n % 3 == 0,
                "tags": ["alpha", "beta", f"tag{n}"], "address": {"street": f"{n} Main Street", "zip": None},
            }
            for n in range(28)
        ],
    }
    length = 0
    for _ in range(rounds):
        text = json.dumps(document)
        length += len(text) + len(json.loads(text)["users"])
    return length


def text(rounds=15):
    """Splitting, counting, sorting, matching and joining of words."""
    line = "  The quick brown fox, jumps over the lazy dog; and runs away from 12 hounds in 34 fields!  "
    lines = [f"{line}{n} {n * 7919 % 1009}\n" for n in range(900)]
    pattern = re.compile(r"(\w+)\s+(\d+)")
    total = 0
    for _ in range(rounds):
        counts, matched = {}, []
        for entry in lines:
            for word in entry.strip().lower().split():
                word = word.strip(",;!.")
                counts[word] = counts.get(word, 0) + 1
            matched.extend(pattern.findall(entry))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        total += len(" ".join(word for word, _count in ranked)) + len(matched)
    return total


def queens(n=8, rounds=4):
    """Generators and sets: eight queens on a board, by trying all permutations."""
    columns = range(n)
    return sum(
        n == len({row[each] + each for each in columns}) == len({row[each] - each for each in columns})
        for _ in range(rounds)
        for row in permutations(columns)
    )


def spectral(n=150):
    """Calls of small functions within comprehensions: the largest singular value of an infinite matrix."""

    def element(i, j):
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    def product(vector):
        return [sum(element(i, j) * each for j, each in enumerate(vector)) for i in range(n)]

    def transposed(vector):
        return [sum(element(j, i) * each for j, each in enumerate(vector)) for i in range(n)]

    u = [1.0] * n
    for _ in range(4):
        v = transposed(product(u))
        u = transposed(product(v))
    return round(sum(a * b for a, b in zip(u, v)) / sum(b * b for b in v), 9)


class Point:
    """A point in space, which is scaled to length one and compared."""

    __slots__ = ("x", "y", "z")

    def __init__(self, number):
        self.x = (number % 97) / 97
        self.y = (number % 89) / 89 * 3
        self.z = self.x * self.x / 2

    def normalize(self):
        length = (self.x * self.x + self.y * self.y + self.z * self.z) ** 0.5 or 1.0
        self.x /= length
        self.y /= length
        self.z /= length

    def largest(self, other):
        self.x = self.x if self.x > other.x else other.x
        self.y = self.y if self.y > other.y else other.y
        self.z = self.z if self.z > other.z else other.z
        return self


def points(count=60_000):
    """Objects that are made, changed by their methods and thrown away."""
    made = [Point(number) for number in range(count)]
    for each in made:
        each.normalize()
    best = made[0]
    for each in made[1:]:
        best = best.largest(each)
    return round(best.x + best.y + best.z, 9)


def digits(count=1_500):
    """Long integers: the digits of pi, one after the other."""
    found, k = [], 1
    numerator, accumulator, denominator = 1, 0, 1
    while len(found) < count:
        accumulator = (accumulator + 2 * numerator) * (2 * k + 1)
        numerator *= k
        denominator *= 2 * k + 1
        k += 1
        if numerator > accumulator:
            continue
        digit = (numerator * 3 + accumulator) // denominator
        if digit == (numerator * 4 + accumulator) // denominator:
            found.append(digit)
            accumulator = (accumulator - digit * denominator) * 10
            numerator *= 10
    return sum(place * digit for place, digit in enumerate(found))


class Tree:
    """A binary tree of so many levels."""

    def __init__(self, depth):
        self.left = Tree(depth - 1) if depth else None
        self.right = Tree(depth - 1) if depth else None

    def __iter__(self):
        if self.left is not None:
            yield from self.left
        yield self
        if self.right is not None:
            yield from self.right


def trees(depth=13, rounds=8):
    """Objects that hold each other, and generators within generators."""
    return sum(1 for _ in range(rounds) for _node in Tree(depth))


def bills(calls=60_000):
    """Decimal numbers: calls are billed to the cent, with taxes."""
    rates, cent = (Decimal("0.0013"), Decimal("0.00894")), Decimal("0.01")
    basic, distant = Decimal("0.0675"), Decimal("0.0341")
    total = taxes = Decimal(0)
    for number in range(calls):
        seconds = number * 7919 % 3_600
        price = (rates[number & 1] * seconds).quantize(cent, rounding=ROUND_HALF_EVEN)
        tax = (price * basic).quantize(cent)
        if number & 1:
            tax += (price * distant).quantize(cent)
        total += price + tax
        taxes += tax
    return [str(total), str(taxes)]


def cipher(blocks=3_000):
    """Bytes and tables: a cipher of 32 rounds that mixes four words by a table of 256."""
    table = [(each * 197 ^ each >> 3 ^ 99) & 255 for each in range(256)]
    data, state = bytes(range(16)), [0x01234567, 0x89ABCDEF, 0xFEDCBA98, 0x76543210]
    out = bytearray()
    for block in range(blocks):
        for turn in range(32):
            word = state[turn & 3] ^ state[turn + 1 & 3] ^ data[turn & 15] ^ block
            mixed = table[word & 255] | table[word >> 8 & 255] << 8 | table[word >> 16 & 255] << 16 | table[word >> 24] << 24
            state[turn + 2 & 3] = (mixed << 13 | mixed >> 19) & 0xFFFFFFFF
        out += state[0].to_bytes(4, "big")
    return sum(out)


class Job:
    """Something that a scheduler has do its work in small steps."""

    def __init__(self, name, priority):
        self.name, self.priority, self.inbox, self.done = name, priority, [], 0

    def step(self, scheduler):
        raise NotImplementedError


class Producer(Job):
    """A job that sends."""

    def step(self, scheduler):
        self.done += 1
        scheduler.send(f"worker {self.done % scheduler.workers}", self.done)
        return self.done < scheduler.limit


class Worker(Job):
    """A job that adds up what it is sent."""

    def step(self, scheduler):
        if self.inbox:
            self.done += self.inbox.pop(0) & 15
        return True


class Scheduler:
    """Has the jobs take turns, those that matter more first."""

    def __init__(self, workers, limit):
        self.workers, self.limit = workers, limit
        self.jobs = {f"worker {number}": Worker(f"worker {number}", number % 3) for number in range(workers)}
        self.jobs["producer"] = Producer("producer", 9)

    def send(self, name, value):
        self.jobs[name].inbox.append(value)

    def run(self):
        goes_on = True
        while goes_on:
            for job in sorted(self.jobs.values(), key=lambda job: -job.priority):
                goes_on = job.step(self) and goes_on
        return sum(job.done for job in self.jobs.values())


def schedule(limit=40_000):
    """Methods of classes that inherit, attributes, dicts."""
    return Scheduler(6, limit).run()


LOOPS = {
    "nbody": nbody, "fannkuch": fannkuch, "json": json_text, "text": text, "queens": queens, "spectral": spectral,
    "points": points, "digits": digits, "trees": trees, "bills": bills, "cipher": cipher, "schedule": schedule,
}
