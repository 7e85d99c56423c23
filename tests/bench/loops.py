# Loops that keep a processor busy, run both in a sandbox and by a native CPython. Each returns something that tells
# whether the same work was done.

import json
import re
from itertools import combinations


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


LOOPS = {"nbody": nbody, "fannkuch": fannkuch, "json": json_text, "text": text}
