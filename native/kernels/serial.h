/* Comparing correlation ids, which wrap: u32, about a day of launches. */
#ifndef ARGUS_SERIAL_H
#define ARGUS_SERIAL_H

#include <cstdint>

namespace argus {

/* RFC 1982: a before b, where they are less than 2^31 apart. */
inline bool serial_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

} // namespace argus

#endif
