"""Search of a federation for assistants: ``fedrank search mcp``, and a retriever of LangChain."""
