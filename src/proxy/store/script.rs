//! The scripts that decide in the server. Each has one key, so that it also runs in a cluster.

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Takes from a rate limit.
    Take,
    /// Gives a turn back that was taken and not used.
    GiveBack,
    /// Claims the work of a key.
    Claim,
    /// Keeps the claim.
    Renew,
    /// Keeps the answer.
    Keep,
    /// Gives the claim up.
    Free,
}

/// The generic cell rate algorithm. A key holds the time at which the limit is unused again, in microseconds of the server's
/// clock. Times are given as text, because Lua's numbers would lose their last digits on the way.
///
/// Arguments: the interval at which one more is due, how far ahead of that one may come, and how long one may wait for its
/// turn. Answer: the wait before its turn, or -1; if it has none, the time until it may ask again; what is left; and
/// the new time.
const TAKE: &str = "\
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, ahead, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local unused = tonumber(redis.call('GET', KEYS[1]) or now)
if unused < now then unused = now end
local wait = unused - ahead - now
if wait < 0 then wait = 0 end
if wait > patience then return {-1, math.ceil(wait), 0, ''} end
unused = unused + interval
local held = string.format('%.3f', unused)
redis.call('SET', KEYS[1], held, 'PX', math.ceil((unused - now) / 1000) + 1)
return {math.ceil(wait), 0, math.max(0, math.floor((ahead + interval - (unused - now)) / interval)), held}
";

/// Arguments: the time that [`TAKE`] answered, and the interval. If somebody has taken since then, the turn is lost.
const GIVE_BACK: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], string.format('%.3f', tonumber(ARGV[1]) - tonumber(ARGV[2])), 'KEEPTTL')
return 1
";

/// Arguments: the fingerprint of the request, who claims, and for how long (ms). Answer: 0 if the claim is made, 1 if
/// another one is in force, 2 if the key belongs to another request, 3 with the kept answer.
const CLAIM: &str = "\
local held = redis.call('HMGET', KEYS[1], 'request', 'claim', 'answer')
if not held[1] then
  redis.call('HSET', KEYS[1], 'request', ARGV[1], 'claim', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return {0, ''}
end
if held[1] ~= ARGV[1] then return {2, ''} end
if held[3] then return {3, held[3]} end
return {1, ''}
";

/// Arguments: who claims, and for how long from now (ms).
const RENEW: &str = "\
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
";

/// Arguments: who claims, the answer, and how long it is kept (ms).
const KEEP: &str = "\
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'claim')
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
";

/// Argument: who claims.
const FREE: &str = "\
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
";

impl Script {
    /// All, in order.
    pub(super) const ALL: [Self; 6] =
        [Self::Take, Self::GiveBack, Self::Claim, Self::Renew, Self::Keep, Self::Free];

    /// Its place in that order.
    pub(super) const fn place(self) -> usize {
        self as usize
    }

    /// Its text.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Take => TAKE,
            Self::GiveBack => GIVE_BACK,
            Self::Claim => CLAIM,
            Self::Renew => RENEW,
            Self::Keep => KEEP,
            Self::Free => FREE,
        }
    }
}
