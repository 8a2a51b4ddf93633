"""The read side of segments: layout, reader, discovery."""
