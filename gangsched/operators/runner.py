"""placeholder"""
async def run_operators(kubeconfig, client): 
    import asyncio; await asyncio.Event().wait()
